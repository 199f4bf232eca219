"""What the notebooks print is looked at, not only how they end."""

from __future__ import annotations

import pytest

from tests.conformance.__main__ import missing_of_bert, missing_of_resnet

RESNET = "".join(
    f"(RayTrainWorker pid=1) Epoch {epoch}-{phase} Loss: 0.{epoch}123 Acc: 0.{epoch}500\n"
    for epoch in range(10)
    for phase in ("train", "val")
)
RESNET += "Training result: Result(metrics={'loss': 0.91231, 'acc': 0.95}, checkpoint=None)\n"
BERT = "".join(f"(RayTrainWorker pid=1) train epoch:[{epoch}]\tloss:1.{epoch}\n" for epoch in range(10))


def test_what_the_notebooks_print_is_enough() -> None:
    assert missing_of_resnet(RESNET) == missing_of_bert(BERT) == ""


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (RESNET.replace("Epoch 9-val", "Epoch"), "it printed the losses of 19 of 20 epochs and phases"),
        (RESNET.replace("0.3123", "nan", 1), "a loss or accuracy cannot be: "),
        (RESNET.replace("0.91231", "0.5"), "the result has loss=0.5, and the last epoch printed 0.9123"),
        (RESNET.replace("'acc': 0.95", ""), "the result has acc=None"),
    ],
)
def test_a_resnet_whose_numbers_are_wrong_fails(spoilt: str, message: str) -> None:
    assert missing_of_resnet(spoilt).startswith(message)


def test_a_bert_whose_numbers_are_wrong_fails() -> None:
    assert missing_of_bert(BERT.replace("loss:1.3", "loss:nan")) == "a loss is nan"
    assert missing_of_bert(BERT.replace("epoch:[9]", "epoch:[8]")).startswith("it printed losses of the epochs [0, 1")
