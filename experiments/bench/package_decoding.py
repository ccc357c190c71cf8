"""`--task package_translation` decodes with the p of the entmax package, for comparison."""

import entmax as peer
from fairseq.tasks import register_task
from torch import Tensor

import sparse_fairseq.register  # noqa: F401
from sparse_fairseq.output_transform import OutputTransform
from sparse_fairseq.tasks import SparseTranslationConfig, SparseTranslationTask


class PackageTransform(OutputTransform):
    def scores(self, logits: Tensor) -> Tensor:
        return peer.entmax15(logits.float(), dim=-1, k=100)


@register_task("package_translation", dataclass=SparseTranslationConfig)
class PackageTranslationTask(SparseTranslationTask):
    def build_generator(self, models, *args, **kwargs):
        for model in models:
            model.decoder.output_transform = PackageTransform(
                model.decoder.output_transform.settings
            )
        # Somebody who names a solver gets p of the whole vocabulary.
        self.cfg.decoding_solver = "topk"
        return super().build_generator(models, *args, **kwargs)
