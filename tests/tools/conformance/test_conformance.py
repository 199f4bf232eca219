"""What the notebooks print is looked at, not only how they end."""

from __future__ import annotations

import pytest

from tests.tools.conformance.__main__ import missing_of_bert, missing_of_resnet

REPORT = "training result {}: TrainingReport(checkpoint=None, metrics={{'loss': {}, 'acc': 0.5}}, validation=False)"
RESNET = "".join(
    f"(RayTrainWorker pid=1) Epoch {epoch}-train Loss: 0.7123 Acc: 0.5000\n"
    f"(RayTrainWorker pid=1) Epoch {epoch}-train Loss: 0.7123 Acc: 0.5000\n"
    f"(RayTrainWorker pid=1) Epoch {epoch}-val Loss: 0.{epoch}123 Acc: 0.5000\n"
    f"(RayTrainWorker pid=1) Reporting {REPORT.format(epoch + 1, f'0.{epoch}12345')} from rank 0\n"
    f"(RayTrainWorker pid=2) Reporting {REPORT.format(epoch + 1, '0.6')} from rank 1\n"
    for epoch in range(10)
)
BERT = "".join(f"(RayTrainWorker pid=1) train epoch:[{epoch}]\tloss:1.{epoch}\n" for epoch in range(10))


def test_the_notebooks_print_enough() -> None:
    assert missing_of_resnet(RESNET) == missing_of_bert(BERT) == ""


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (RESNET.replace("Epoch 9-val", "Epoch"), "it printed the losses of 19 of 20 epochs and phases"),
        (RESNET.replace("0.3123 ", "nan "), "it printed the loss nan and the accuracy 0.5000"),
        (
            RESNET.replace("0.912345", "0.5"),
            "in epoch 9 it printed ('0.9123', '0.5000') and reported ('0.5000', '0.5000')",
        ),
        (RESNET.replace("result 4:", "result:"), "in epoch 3 it printed ('0.3123', '0.5000') and reported ()"),
    ],
)
def test_a_resnet_whose_numbers_are_wrong_fails(spoilt: str, message: str) -> None:
    assert missing_of_resnet(spoilt).startswith(message)


def test_a_bert_whose_numbers_are_wrong_fails() -> None:
    assert missing_of_bert(BERT.replace("loss:1.3", "loss:nan")) == "a loss is nan"
    assert missing_of_bert(BERT.replace("epoch:[9]", "epoch:[8]")).startswith("it printed losses of the epochs [0, 1")
