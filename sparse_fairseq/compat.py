"""What fairseq needs to run on current torch; applied when this is imported.

torch ≥ 2.6 loads checkpoints with weights_only=True. That stays: below is an allow-list of the
plain data types that fairseq's checkpoints contain, none of which runs code when unpickled.
"""

import argparse
import typing
from collections import OrderedDict, defaultdict

import numpy as np
import omegaconf
import torch
from fairseq.distributed import utils as distributed_utils

from . import cpu_workers

# Configurations of models that fairseq has not moved to dataclasses.
_CONFIG = [argparse.Namespace]
# Meters: `--eval-bleu` keeps its counts as arrays, other criteria their values as numpy scalars.
# numpy 2 renamed the modules that older checkpoints mention.
_MULTIARRAY = getattr(np, "_core", None) or np.core
_NUMPY = [np.ndarray, np.dtype, *(type(np.dtype(t)) for t in (np.int64, np.float64, np.float32))]
for _name in ("_reconstruct", "scalar"):
    _function = getattr(_MULTIARRAY.multiarray, _name)
    for _module in ("numpy._core.multiarray", "numpy.core.multiarray"):
        _NUMPY.append((_function, f"{_module}.{_name}"))
# Workers get the checkpoint from worker 0 as a pickle, after its configuration was parsed.
_BROADCAST = [
    distributed_utils._TensorPlaceholder,
    omegaconf.DictConfig,
    omegaconf.ListConfig,
    omegaconf.base.ContainerMetadata,
    omegaconf.base.Metadata,
    omegaconf.nodes.AnyNode,
    typing.Any,
    OrderedDict,
    defaultdict,
    dict,
    list,
    int,
]

torch.serialization.add_safe_globals([*_CONFIG, *_NUMPY, *_BROADCAST])

cpu_workers.enable()
