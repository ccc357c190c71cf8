"""Tiny fairseq tasks, models and data, built in this process."""

from argparse import Namespace

import numpy as np
import torch
from fairseq.data import Dictionary, LanguagePairDataset

from sparse_fairseq.tasks import SparseTranslationConfig, SparseTranslationTask

SIZES = {"embed_dim": 16, "ffn_embed_dim": 32, "layers": 1, "attention_heads": 2}


def dictionary(size: int = 24, made_up: int = 4) -> Dictionary:
    """`size` entries in all, the last `made_up` of which only pad the size."""
    symbols = Dictionary()
    for i in range(size - made_up - symbols.nspecial):
        symbols.add_symbol(f"w{i}")
    for i in range(made_up):
        symbols.add_symbol(f"madeupword{i:04d}")
    return symbols


def make_task(vocab: int = 24, made_up: int = 4, **config) -> SparseTranslationTask:
    symbols = dictionary(vocab, made_up)
    unset = {"finetune_from_model": None, "train_subset": "train", "save_dir": "/nonexistent"}
    unset |= {"results_path": None, "post_process": None, "gen_subset": "test"}
    return SparseTranslationTask(SparseTranslationConfig(**{**unset, **config}), symbols, symbols)


ARCHITECTURES = {  # what each family needs to be tiny, beside SIZES
    "transformer": {},
    "transformer_align": {},
    "sparse_transformer": {},
    "lightconv": {
        **{"encoder_conv_dim": 16, "decoder_conv_dim": 16},
        **{"encoder_kernel_size_list": [3], "decoder_kernel_size_list": [3]},
        **{"encoder_conv_type": "lightweight", "decoder_conv_type": "lightweight"},
        "weight_softmax": True,
    },
    "lstm": {
        **{"encoder_hidden_size": 16, "decoder_hidden_size": 16, "decoder_out_embed_dim": 16},
        "criterion": "any",
    },
    "fconv": {"encoder_layers": "[(16, 3)]", "decoder_layers": "[(16, 3)]"},
}


def make_model(task, arch: str = "transformer", sizes: dict = SIZES, from_checkpoint=False, **args):
    both = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in sizes.items()}
    limits = {"dropout": 0.1, "max_source_positions": 64, "max_target_positions": 64}
    args = {**both, **limits, **ARCHITECTURES[arch], **args}
    torch.manual_seed(0)
    return task.build_model(Namespace(arch=arch, **args), from_checkpoint)


def make_criterion(task, name: str, **config):
    return task.build_criterion(Namespace(criterion=name, sentence_avg=False, **config))


def make_dataset(task, sentences: int = 8, length: int = 6, seed: int = 0) -> LanguagePairDataset:
    rng = np.random.default_rng(seed)
    words = np.flatnonzero([s.startswith("w") for s in task.tgt_dict.symbols])
    lengths = rng.integers(1, length, sentences)
    lines = [torch.tensor([*rng.choice(words, n), task.tgt_dict.eos()]) for n in lengths]
    sizes = np.array([len(line) for line in lines])
    pair = (lines, sizes, task.src_dict, lines, sizes, task.tgt_dict)
    return LanguagePairDataset(*pair, shuffle=False)


def make_batch(task, **options) -> dict:
    data = make_dataset(task, **options)
    return data.collater([data[i] for i in range(len(data))])


def begin_training(task, model, dataset) -> None:
    """What fairseq-train does between building the model and the first update."""
    load_training_data(task, dataset)
    task.begin_epoch(1, model)


def load_training_data(task, dataset) -> None:
    task.datasets["train"] = dataset
    task.get_batch_iterator(dataset, max_sentences=64, epoch=1).next_epoch_itr()
