"""Code that nobody here wrote, unchanged, on the stand-in for HPUs.

python -m tests.tools.conformance --source DIR      # DIR: a folder with Ray's notebooks resnet.ipynb and bert.ipynb

Prints a line of JSON for each case: its name, the result (passed, failed or cannot run), the reason, everything that
stands in for something else, and seconds. Exits with 1 if a case failed. A notebook must also print the loss of every
epoch, and its result must have what it reports. The scripts are accelerate's own, from
its installed wheel, and the two notebooks of Ray's documentation for Gaudi (doc/source/train/examples/intel_gaudi).
Their data and weights are on the internet: small ones are laid out here where that code looks for them, and the code
runs as it is. Trainers run in a sweep: transformers' and accelerate's in docs/examples, TRL's SFTTrainer (``pip install
trl``) in sft.py beside this file, on two and four HPUs a trial. Each case takes 20 s to some minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from gaudi_tune.define.options import PROJECT_ROOT
from tests.helpers.stand_in_hpu import environment

WITHIN_S = 900
"""How long a case may take."""
LAST_LINES = 400
"""Characters of the output that a failure shows."""
HYMENOPTERA_IMAGES = {"train": 12, "val": 4}
"""Images of each class."""
REVIEWS = 1000
"""The notebook takes as many of each split."""
SEEDED = """
import os, runpy, sys
import numpy
unseeded, rank = numpy.random.default_rng, int(os.environ.get("RANK", "0"))
numpy.random.default_rng = lambda seed=None: unseeded(rank if seed is None else seed)
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Runs a script of accelerate's on the same data each time. By itself it draws others each time, and compares the
gradients of two models that took different steps to 1 %: where one is near 0 by chance, that fails, and on the CPU with
gloo just as here."""
EPOCHS = 10
"""The notebooks' own."""
TUNED = PROJECT_ROOT / "docs" / "examples" / "tuned"
SFT = Path(__file__).with_name("sft.py")
SWEEPS = [(script, hpus) for script in (TUNED / "hf_trainer.py", TUNED / "accelerate_cv.py", SFT) for hpus in (2, 4)]
"""Scripts that tune, and on how many HPUs a trial."""
ENVIRONMENT = {
    "PT_HPU_LAZY_MODE": "0",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    "RAY_ADDRESS": "local",  # a new Ray: ray.init() joins one that it finds on the machine
    "RAY_DEDUP_LOGS": "0",  # else Ray folds lines that differ only in numbers
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
"""What is set for the code, besides what finds the stand-in."""
ACCURACY = """
import datasets
import evaluate
class Accuracy(evaluate.Metric):
    def _info(self):
        features = datasets.Features({"predictions": datasets.Value("int32"), "references": datasets.Value("int32")})
        return evaluate.MetricInfo(description="", citation="", features=features)
    def _compute(self, predictions, references):
        return {"accuracy": sum(p == r for p, r in zip(predictions, references)) / len(references)}
"""


@dataclass
class Result:
    """What became of a case."""

    case: str
    result: str
    reason: str = ""
    replaced: list[str] = field(default_factory=list)
    """What the code would use by itself, and what it gets."""
    seconds: float = 0.0


def main() -> None:
    """Run all cases, print a line for each, and exit with 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="a folder with resnet.ipynb and bert.ipynb, or .py files of them")
    parser.add_argument("--only", default="", help="run the cases whose name has this in it")
    given = parser.parse_args()
    failed = False
    for result in cases(given.source, given.only):
        failed |= result.result == "failed"
        print(json.dumps(asdict(result)), flush=True)
    sys.exit(failed)


def cases(source: Path | None, only: str = "") -> Iterator[Result]:
    """Yield the result of each case."""
    found = find_spec("accelerate")
    scripts = Path(found.origin or "").parent / "test_utils" / "scripts" if found else Path()
    for script, processes in (("test_ops", 1), ("test_sync", 1), ("test_ops", 2), ("test_sync", 2)):
        case = f"accelerate {script}, {processes} process{'es with DDP' if processes > 1 else ''}"
        if only not in case:
            continue
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        with tempfile.TemporaryDirectory() as folder:
            (seeded := Path(folder) / "seeded.py").write_text(SEEDED)
            code = [*(launch if processes > 1 else []), str(seeded), str(scripts / f"{script}.py")]
            yield run(case, code, Path(folder), ["numpy's default_rng(): with a seed, so that the data are the same"])
    for script_file, hpus in SWEEPS:
        case = f"a sweep of {script_file.name}, {hpus} HPUs a trial"
        if only not in case:
            continue
        if script_file == SFT and find_spec("trl") is None:
            yield Result(case, "cannot run", "TRL is not installed: pip install trl")
            continue
        with tempfile.TemporaryDirectory() as folder:
            options = f"--workers-per-trial {hpus} --num-samples 2 --epochs 2 --confirm 0 --device hpu --json"
            code = [str(script_file), *options.split()]
            yield run(case, code, Path(folder), (), missing_of_sweep, HABANA_STAND_IN_MODULES=str(hpus))
    for case, name, lay_out, missing in (
        ("ResNet-50 of Ray's documentation (S1)", "resnet", lay_out_hymenoptera, missing_of_resnet),
        ("BERT of Ray's documentation (S2)", "bert", lay_out_reviews, missing_of_bert),
    ):
        if only not in case:
            continue
        code_file = next(source.rglob(f"{name}.[ip][py]*"), None) if source else None
        if code_file is None:
            yield Result(case, "cannot run", f"no {name}.ipynb below --source: {source}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            script_file = Path(folder) / f"{name}.py"
            script_file.write_text(code_of(code_file))
            replaced, variables = lay_out(Path(folder))
            yield run(case, [script_file.name], Path(folder), replaced, missing, **variables)


def code_of(file: Path) -> str:
    """Return the code of a notebook, cell after cell, or of a script."""
    if file.suffix != ".ipynb":
        return file.read_text()
    cells = json.loads(file.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def run(
    case: str,
    code: Sequence[str],
    folder: Path,
    replaced: Sequence[str] = (),
    missing_in: Callable[[str], str] = lambda printed: "",
    **variables: str,
) -> Result:
    """Run Python on the stand-in in a folder. ``missing_in`` returns what is wrong with the text that it prints."""
    began = time.monotonic()
    own = environment(folder / "hpu", **ENVIRONMENT, **variables)
    with subprocess.Popen(
        [sys.executable, *code],
        cwd=folder,
        env=own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=WITHIN_S)
            ending = f"status {process.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            printed, ending = process.communicate()[0], f"not done in {WITHIN_S} s"
    used = (folder / "hpu" / "acquisitions.jsonl").exists()
    wrong = ending if ending != "status 0" else "" if used else "it used no HPU"
    wrong = wrong or missing_in(printed)
    why = f"{wrong}: ...{printed.strip()[-LAST_LINES:]}" if wrong else ""
    settings = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
    everywhere = ["HPUs: the stand-in, on the CPU", f"Ray: {version('ray')}", f"the environment: {settings}"]
    seconds = round(time.monotonic() - began, 1)
    return Result(case, "failed" if wrong else "passed", why, [*replaced, *everywhere], seconds)


def missing_of_sweep(printed: str) -> str:
    """Return what is wrong with the summary that a sweep of two trials prints."""
    summary = json.loads(printed[printed.index("\n{\n") :] if not printed.startswith("{") else printed)
    counts = summary["counts"]
    return "" if sum(counts.values()) == 2 and "failed" not in counts else f"its trials ended as {counts}"


def missing_of_resnet(printed: str) -> str:
    """Return what is wrong with the losses and accuracies that the notebook of ResNet-50 prints and reports.

    Ray prints a worker's lines twice, and each report.
    """
    found = re.findall(r"Epoch (\d+)-(train|val) Loss: (\S+) Acc: (\S+)", printed)
    lines = {(int(epoch), phase): (loss, accuracy) for epoch, phase, loss, accuracy in found}
    expected = [(epoch, phase) for epoch in range(EPOCHS) for phase in ("train", "val")]
    if list(lines) != expected:
        return f"it printed the losses of {len(lines)} of {len(expected)} epochs and phases"
    for loss, accuracy in lines.values():  # an accuracy is divided by a rounded number of images
        if not math.isfinite(float(loss)) or not 0 <= float(accuracy) <= 1.1:
            return f"it printed the loss {loss} and the accuracy {accuracy}"
    report = r"training result (\d+): TrainingReport\(.*?'loss': ([^,]+), 'acc': ([^}]+)\}.*? from rank 0"
    reports = {int(number): (loss, accuracy) for number, loss, accuracy in re.findall(report, printed)}
    for epoch in range(EPOCHS):
        reported = tuple(f"{float(value):.4f}" for value in reports.get(epoch + 1, ()))
        if reported != lines[epoch, "val"]:
            return f"in epoch {epoch} it printed {lines[epoch, 'val']} and reported {reported}"
    return ""


def missing_of_bert(printed: str) -> str:
    """Return what is wrong with the losses that the notebook of BERT prints. It reports and evaluates nothing."""
    lines = re.findall(r"train epoch:\[(\d+)\]\s+loss:(\S+)", printed)
    if {int(epoch) for epoch, _ in lines} != set(range(EPOCHS)):
        return f"it printed losses of the epochs {sorted({int(epoch) for epoch, _ in lines})}, and not of {EPOCHS}"
    wrong = [loss for _, loss in lines if not math.isfinite(float(loss))]
    return f"a loss is {wrong[0]}" if wrong else ""


def lay_out_hymenoptera(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Put a wget that copies a small archive on the PATH, and weights where torchvision keeps them."""
    import torch
    from torchvision import datasets, models

    images = datasets.FakeData(2 * sum(HYMENOPTERA_IMAGES.values()), (3, 256, 256), num_classes=2)
    taken = iter(range(len(images)))
    with zipfile.ZipFile(folder / "made.zip", "w") as archive:
        for split, count in HYMENOPTERA_IMAGES.items():
            for name in ("ants", "bees"):
                for _ in range(count):
                    number = next(taken)
                    images[number][0].save(file := folder / "image.jpg")
                    archive.write(file, f"hymenoptera_data/{split}/{name}/{number}.jpg")
    programs = folder / "bin"
    programs.mkdir()
    (programs / "wget").write_text(f"#!/bin/sh\ncp {folder / 'made.zip'} hymenoptera_data.zip\n")
    (programs / "unzip").write_text(f'#!/bin/sh\nexec {sys.executable} -m zipfile -e "$1" .\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    weights = models.ResNet50_Weights.IMAGENET1K_V1.url.rpartition("/")[2]
    (folder / "torch" / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(models.resnet50().state_dict(), folder / "torch" / "hub" / "checkpoints" / weights)
    made = f"{sum(HYMENOPTERA_IMAGES.values())} random images of each class"
    replaced = [
        f"hymenoptera_data.zip: {made}, from a wget on the PATH",
        "unzip: Python's zipfile, on the PATH",
        f"{weights}: random weights, in TORCH_HOME",
    ]
    return replaced, {"PATH": f"{programs}:{os.environ['PATH']}", "TORCH_HOME": str(folder / "torch")}


def lay_out_reviews(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Put a small BERT, reviews and a metric into Hugging Face's caches, as if they had been downloaded."""
    from datasets import Dataset
    from datasets.packaged_modules.parquet.parquet import Parquet
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = ["the", "food", "was", "very", "good", "bad", "slow", "friendly", "cold", "great", "never", "again"]
    words += ["place", "staff", "and", "i"]
    home, revision = folder / "hf", "0" * 40
    model = home / "hub" / "models--bert-base-cased"
    snapshot = model / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(revision)
    vocabulary = snapshot / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    BertTokenizerFast(str(vocabulary), do_lower_case=False, model_max_length=16).save_pretrained(snapshot)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=5 + len(words), max_position_embeddings=16, num_labels=5, **sizes)
    BertForSequenceClassification(config).save_pretrained(snapshot)
    files = {}
    for split in ("train", "test"):
        texts = [" ".join(words[(7 * number + place) % len(words)] for place in range(8)) for number in range(REVIEWS)]
        reviews = Dataset.from_dict({"label": [number % 5 for number in range(REVIEWS)], "text": texts})
        files[split] = str(folder / f"{split}.parquet")
        reviews.to_parquet(files[split])
    cache = home / "datasets"
    builder = Parquet(cache_dir=str(cache), dataset_name="yelp_review_full", data_files=files, hash=revision)
    builder.download_and_prepare()
    (made,) = (cache / "yelp_review_full").glob("default-*")
    made.rename(made.with_name("default"))  # the suffix says of which files it was made
    metric = folder / "accuracy"
    metric.mkdir()
    (metric / "accuracy.py").write_text(ACCURACY)
    replaced = [
        "bert-base-cased: a random BERT of one layer and 16 tokens, in Hugging Face's cache",
        f"yelp_review_full: {REVIEWS} made-up reviews a split, in Hugging Face's cache",
        "evaluate's accuracy: a module of that name in the current folder",
    ]
    return replaced, {"HF_HOME": str(home), "HF_DATASETS_CACHE": str(cache)}


if __name__ == "__main__":
    main()
