"""What Hugging Face's Trainer is refused before it trains, and one that shards its model."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

from gaudi_tune.integrations.hugging_face import ReportCallback
from tests.helpers.stand_in_hpu import fork


@pytest.mark.parametrize("added", ["at once", "later"])
@pytest.mark.parametrize(
    ("sharding", "why"),
    [
        ("fsdp", "fsdp must be off on a cpu, on which accelerate does not"),
        ("deepspeed", r"ReportCallback must have .* call trainer.add_callback\(ReportCallback\(trainer\)\)"),
    ],
)
def test_what_would_not_be_sharded_or_not_be_saved_is_refused(
    sharding: str, why: str, added: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sharding itself would need several devices."""
    arguments = TrainingArguments(output_dir=str(tmp_path), report_to="none", use_cpu=True)
    model, callback = torch.nn.Linear(1, 1), ReportCallback()
    trainer = Trainer(model, arguments, train_dataset=[{"x": 1}])
    setattr(arguments, sharding, "full_shard")
    parts: tuple[Any, ...] = (arguments, trainer.state, trainer.control)
    if sharding == "fsdp":
        callback.on_init_end(*parts)  # nothing is sharded over one device
    monkeypatch.setattr(TrainingArguments, "world_size", 2)
    check = callback.on_init_end if added == "at once" else callback.on_train_begin
    with pytest.raises(ValueError, match=f"^{why}"):
        check(*parts)


def test_the_first_steps_of_a_long_epoch_are_not_epoch_0(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The sweep would take the loop for one that counts epochs from 0, and end its trials an epoch early."""
    caplog.set_level("INFO")
    arguments, callback = TrainingArguments(output_dir=str(tmp_path), report_to="none", use_cpu=True), ReportCallback()
    callback.on_train_begin(arguments)
    state = TrainerState(epoch=0.0003, global_step=30)
    metrics = {"eval_loss": 1.0, "eval_runtime": 0.2, "eval_own_runtime": 3.0}  # the last one is compute_metrics'
    callback.on_evaluate(arguments, state, TrainerControl(), metrics=metrics, model=torch.nn.Linear(1, 1))
    assert "'epoch': 0.0003, 'step': 30" in caplog.text
    metrics = {"eval_first_loss": 1.0, "eval_first_runtime": 0.1}
    with pytest.raises(
        ValueError, match=r"with several datasets .* call trainer.add_callback\(ReportCallback\(trainer"
    ):
        callback.on_evaluate(arguments, state, TrainerControl(), metrics=metrics, model=torch.nn.Linear(1, 1))


SHARDED = """
import os
from pathlib import Path
import torch
import torch.distributed as dist
from habana_frameworks.torch.distributed import hccl
folder, rank = Path(os.environ["FOLDER"]), os.environ["RANK"]
torch.set_num_threads(1)
torch.ones(1, device="hpu")
dist.init_process_group("hccl")
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from gaudi_tune.integrations.hugging_face import ReportCallback, checkpoint_folder
from tests.helpers.sessions import reports_of
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
def loop(config):
    torch.manual_seed(0)
    data = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(8) + i} for i in range(16)]
    fsdp = {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "version": 2}
    arguments = TrainingArguments(
        output_dir=str(folder / f"out-{rank}"), num_train_epochs=2, eval_strategy="epoch", save_strategy="no",
        report_to="none", disable_tqdm=True, dataloader_pin_memory=False, fsdp=True, fsdp_config=fsdp,
    )
    trainer = Trainer(
        LlamaForCausalLM(LlamaConfig(vocab_size=50, **SIZES)), arguments, train_dataset=data, eval_dataset=data,
        callbacks=[ReportCallback()],
    )
    trainer.train(resume_from_checkpoint=checkpoint_folder())
    print("parameters of", sorted({type(weight).__name__ for weight in trainer.model.state_dict().values()}))
losses = [report["eval_loss"] for report in reports_of(loop, {}, save_at=1, save_to=folder / f"saved-{rank}")]
dist.barrier()
print("saved", sorted(file.name for file in (folder / f"saved-{rank}").iterdir()))
again = reports_of(loop, {}, start_from=folder / "saved-0")
print("goes on", losses[0] > losses[1] > 0, [report["eval_loss"] for report in again] == losses[1:])
dist.destroy_process_group()
"""
FILES = ["optimizer.bin", "pytorch_model_fsdp.bin", "rng_state.pth", "scheduler.pt", "trainer_state.json"]


@pytest.mark.processes
def test_a_trainer_that_shards_its_model_saves_and_goes_on(tmp_path: Path) -> None:
    """On two HPUs of the stand-in: accelerate does not shard on CPUs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "PT_HPU_LAZY_MODE": "0"}
    place |= {"ACCELERATE_TORCH_DEVICE": "hpu:0", "FOLDER": str(tmp_path)}
    ranks = [fork(SHARDED, tmp_path, **place, RANK=str(r), LOCAL_RANK=str(r), HLS_MODULE_ID=str(r)) for r in (0, 1)]
    for files, process in zip((FILES, []), ranks, strict=True):
        printed = process.printed().splitlines()
        assert printed.count("parameters of ['DTensor']") == 2, printed
        assert f"saved {files}" in printed
        assert "goes on True True" in printed
