"""Every value that a paper states about its setup is what the config runs.

`BOUND` says for each published metric which value of a config it is. A setup number that a paper
states and that is not bound here fails a test, and so does a config that says something else.
"""

import json
import re
from pathlib import Path

import pytest

from experiments.commands import Workers, generate_command
from experiments.config import CONFIGS, Config, load_config
from experiments.papers import Number, published
from experiments.systems import find_system

# SE prints sizes of training sets that were rounded or filtered in ways it does not describe.
CHECKED_BY_RECIPES = {"training_pairs", "training_samples_per_language", "languages"}
# What comes out of a run, or is about people and machines: not a setting.
RESULTS = {
    *("bleu", "tokenized_bleu", "word_accuracy", "word_accuracy_ensemble", "parameters"),
    *("empty_string", "support", "attended", "support_share", "tau_batch", "tau_formula"),
    *("human_score", "kappa", "human_examples", "human_samples", "human_sample_size"),
    *("human_shared", "human_scale", "training_hours", "energy", "power", "gpus", "total_score"),
    *("inference_time_ratio", "words_per_second", "shapiro_wilk_p", "hypothesis_probability"),
    *("single_hypothesis", "certified", "best_output_alpha"),
}


def flag(name: str):
    return lambda config, number: config.train[name]


def updates_noam(config: Config, number: Number) -> float:
    """noam's factor of the peak rate: lr = factor · d^-½ · warmup^-½."""
    peak, warmup = config.train["lr"], config.train["warmup-updates"]
    return round(peak * (config.train["encoder-embed-dim"] * warmup) ** 0.5, 3)


def betas(config: Config) -> list[float]:
    return [float(x) for x in re.findall(r"[\d.]+", config.train["adam-betas"])]


def accumulation(config: Config, number: Number) -> float:
    """OpenNMT accumulates on each GPU; the config says how many batches an update has in all."""
    (gpus,) = published(dataset=number.dataset, metric="gpus")
    return config.batch.accumulate / gpus.value


def of_lstm(name: str):
    """A value that the architecture has, unless the config says another one."""

    def value(config: Config, number: Number):
        from argparse import Namespace

        from fairseq.models import ARCH_CONFIG_REGISTRY

        import sparse_fairseq.register  # noqa: F401

        args = Namespace(**{k.replace("-", "_"): v for k, v in config.train.items()})
        ARCH_CONFIG_REGISTRY[config.train["arch"]](args)
        return getattr(args, name)

    return value


def sizes(transformer: str, lstm: str):
    def value(config: Config, number: Number):
        if config.train["arch"].startswith("sparse_lstm"):
            return of_lstm(lstm)(config, number)
        return config.train[transformer]

    return value


def vocabulary(config: Config, number: Number) -> float:
    """SE's vocabularies are as big as its numbers of merges; S2S's is of one language alone."""
    if number.place.startswith("S2S"):
        assert config.data["joint_bpe"] and not config.data["joint_dictionary"]
        return number.value
    assert config.data["joint_dictionary"]
    return config.data["operations"]


def validation_interval(config: Config, number: Number) -> float:
    """In updates, or in epochs where the paper counts these."""
    in_epochs = number.unit == "epochs"
    return config.train["validate-interval" if in_epochs else "validate-interval-updates"]


BOUND = {
    "bpe_merges": lambda config, number: config.data["operations"],
    "vocabulary": vocabulary,
    "alpha": lambda config, number: find_system("relu15").alpha,
    "tau": lambda config, number: find_system(number.system).tau,
    "sorted_logits": lambda config, number: 100 * (find_system(number.system).solver == "topk"),
    "d_model": flag("encoder-embed-dim"),
    "embedding_size": sizes("encoder-embed-dim", "encoder_embed_dim"),
    "hidden_size": flag("encoder-ffn-embed-dim"),
    "layers": sizes("encoder-layers", "encoder_layers"),
    "heads": flag("encoder-attention-heads"),
    "dropout": sizes("dropout", "dropout"),
    "attention_dropout": flag("attention-dropout"),
    "label_smoothing": lambda config, number: config.softmax.get("label-smoothing", 0),
    "batch_tokens": lambda config, number: config.batch.tokens,
    "batch_size": lambda config, number: config.batch.sentences,
    "accumulation": accumulation,
    "adam_beta1": lambda config, number: betas(config)[0],
    "adam_beta2": lambda config, number: betas(config)[1],
    "noam_learning_rate": updates_noam,
    "warmup": flag("warmup-updates"),
    "learning_rate": flag("lr"),
    "ema_decay": lambda config, number: round(1 - config.train["ema-decay"], 10),
    "beam": lambda config, number: config.generate["beam"],
    "max_updates": flag("max-update"),
    "validation_interval": validation_interval,
    "runs": lambda config, number: len(config.seeds),
}


def datasets(number: Number) -> list[str]:
    """Configs that a number is about: one, or all of its paper."""
    if number.dataset:
        return [number.dataset]
    paper = number.place.partition(" ")[0]
    names = [path.stem for path in sorted(CONFIGS.glob("*.yaml"))]
    if number.metric == "runs":  # grids of figures are trained once
        names = [name for name in names if not name.endswith(("_alphas", "_taus"))]
    return [name for name in names if load_config(name).paper == paper]


CASES = [
    pytest.param(name, number, id=f"{number.id}-{name}")
    for number in published()
    if number.metric in BOUND and number.value is not None
    for name in datasets(number)
]


def test_every_published_metric_is_a_result_or_bound():
    metrics = {number.metric for number in published()}
    assert metrics == RESULTS | CHECKED_BY_RECIPES | BOUND.keys()


@pytest.mark.parametrize("name, number", CASES)
def test_a_config_runs_what_its_paper_states(name, number):
    assert BOUND[number.metric](load_config(name), number) == number.value


def test_systems_of_every_number_are_trained_by_the_config_of_its_dataset():
    not_ours = {None, "total", "reference", "UZH"}
    for number in published():
        if number.dataset and number.system not in not_ours:
            assert number.system in load_config(number.dataset).systems, number.id


@pytest.mark.parametrize(
    "system, flag",
    [("entmax15_sort", "--decoding-solver=sort"), ("entmax_bisect", "--decoding-solver=bisect")],
)
def test_what_was_trained_with_a_solver_is_decoded_with_it(system, flag):
    """SE timed decoding with a full sort, too (Fig. 4)."""
    config = load_config("wmt13_en_ru")
    where = (Path("bin"), [Path("model.pt")], Workers(1, {}))
    assert flag in generate_command(config, system, "test", *where)
    usual = generate_command(config, "entmax15", "test", *where)
    assert not any("solver" in word for word in usual)


@pytest.mark.parametrize("name", ["iwslt14_de_en", "wmt14_en_de", "wmt13_en_ru"])
def test_what_opennmt_does_where_se_is_silent(name):
    """OpenNMT-py 2.0.0: onmt/opts.py, onmt/utils/optimizers.py, onmt/modules/position_ffn.py."""
    config = load_config(name)
    assert config.train["adam-eps"] == 1e-9
    assert config.train["clip-norm"] == 0
    assert config.train["activation-dropout"] == config.train["dropout"]
    assert config.train["attention-dropout"] == 0.1
    validation = json.loads(config.train["eval-bleu-args"])
    for where in (validation, config.generate):
        assert where["unnormalized"] is True and where["beam"] == 5
    assert config.train.get("store-ema") == config.train.get("validate-with-ema")


@pytest.mark.parametrize(
    "name", ["iwslt17_de_en", "kftt_ja_en", "wmt16_en_ro", "sigmorphon2018_medium"]
)
def test_what_opennmt_does_where_s2s_is_silent(name):
    """OpenNMT-entmax: onmt/opts.py, onmt/utils/optimizers.py."""
    config = load_config(name)
    assert (config.train["adam-eps"], config.train["clip-norm"]) == (1e-9, 5)
    assert config.generate["unnormalized"] is True and config.generate["max-len-b"] == 100


@pytest.mark.parametrize(
    "name, millions", [("iwslt14_de_en", 46.9), ("wmt14_en_de", 64.6), ("wmt13_en_ru", 74.9)]
)
def test_parameters_of_se_table_1(name, millions):
    """WMT'14's model of Appendix A cannot have 75M: docs say so."""
    from argparse import Namespace

    from fairseq.models import ARCH_MODEL_REGISTRY
    from tiny_fairseq import make_task

    from experiments.analysis.parameters import count

    config = load_config(name)
    (vocabulary,) = published(place="SE Table 3", dataset=name, metric="vocabulary")
    args = {key.replace("-", "_"): value for key, value in config.train.items()}
    limits = {"max_source_positions": 64, "max_target_positions": 64}
    task = make_task(int(vocabulary.value) + 4, made_up=0)
    model = ARCH_MODEL_REGISTRY["transformer"].build_model(Namespace(**args, **limits), task)
    assert count(model)["parameters"] / 1e6 == pytest.approx(millions, abs=0.05)
