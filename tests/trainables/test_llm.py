"""The language model's data, its adapter and what a checkpoint of it gives (its arithmetic: test_sources.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    T5Config,
)

from experiments.tune_llm import sample_settings
from gaudi_tune.base import names
from gaudi_tune.data.chat import ChatData, chat_data
from gaudi_tune.data.packed_texts import IGNORED
from gaudi_tune.training import keep as kept
from search_spaces.llm import SAMPLE_BASELINE
from tests.helpers.sessions import reports_of
from trainables import llm, llm_adapter
from trainables.llm import _token_losses, check, load_model, predictor
from trainables.llm_config import LlmConfig
from trainables.llm_memory import memory_need

Configure = Callable[..., LlmConfig]


@pytest.fixture(scope="module")
def sample() -> dict[str, Any]:
    return {**sample_settings(), **SAMPLE_BASELINE, "epochs": 1, "batch_size": 8, "lr": 0.01, "warmup": 0.0}


@pytest.fixture
def configure(sample: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Return a function that varies the sample recipe's baseline; tokenized data goes to a cache of the test."""
    monkeypatch.setenv("GAUDI_TUNE_CACHE", str(tmp_path / "cache"))
    return lambda **changes: LlmConfig.from_dict({**sample, **changes})


@pytest.fixture(scope="module")
def trained(sample: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The checkpoint of a short trial with dropout, and its report."""
    checkpoint = tmp_path_factory.mktemp("llm") / "checkpoint"
    trial = {**sample, "train_samples": 64, "val_samples": 16, "dropout": 0.1, "target": "mlp", "alpha_ratio": 0.25}
    (report,) = reports_of(llm.train_loop, trial, save_at=1, save_to=checkpoint)
    return checkpoint, report


def learned(data: ChatData, config: LlmConfig, split: Any = "train") -> list[str]:
    """What is learned of each sample, as text."""
    tokenizer, samples = AutoTokenizer.from_pretrained(data.tokenizer), data.split(split, config)
    batch = samples.__getitems__([*range(len(samples))])
    return [
        tokenizer.decode(ids[labels != IGNORED])
        for ids, labels in zip(*map(batch.get, ("input_ids", "labels")), strict=True)
    ]


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    file = folder / "mine.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


USER, ANSWER = {"role": "user", "content": "What is x?"}, {"role": "assistant", "content": "A node."}
TALK = [USER, ANSWER, USER, {"role": "assistant", "content": "An edge."}]
FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "messages": ({"messages": TALK}, "A node.<|end|>An edge.<|end|>"),
    "prompt of messages": ({"prompt": [USER, ANSWER, USER], "completion": [ANSWER]}, "A node.<|end|>"),
    "prompt": ({"prompt": "What is x?", "completion": " A node."}, " A node.<|end|>"),
    "instruction": ({"instruction": "Say", "input": "it", "output": "A node."}, "A node.<|end|>"),
    "text": ({"text": "A node of the graph."}, " node of the graph.<|end|>"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packing", [False, True], ids=["alone", "packed"])
def test_only_answers_are_learned(form: str, packing: bool, configure: Configure, tmp_path: Path) -> None:
    row, answer = FORMS[form]
    config = configure(data=str(write(tmp_path, [row] * 5)), packing=packing, batch_size=1, max_length=128)
    data = chat_data(config)
    texts = learned(data, config)
    assert "".join(texts) == 4 * answer
    assert data.sizes == {"train": 1 if packing else 4, "val": 1}
    assert data.answer_tokens["val"] < data.tokens["val"]


def test_a_tokenizer_without_template_gets_the_prompt_of_alpaca(
    configure: Configure, sample: dict[str, Any], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    AutoModelForCausalLM.from_pretrained(sample["model"]).save_pretrained(model)
    tokenizer = AutoTokenizer.from_pretrained(sample["model"])
    tokenizer.chat_template = None
    tokenizer.save_pretrained(model)
    plain = chat_data(configure(data=str(write(tmp_path, [FORMS["prompt"][0]] * 5)), packing=False, batch_size=1))
    assert AutoTokenizer.from_pretrained(plain.tokenizer).chat_template is None  # no prompt was in the model's own
    rows = [{"instruction": "Say", "input": "it", "output": "A node."}] * 5
    config = configure(data=str(write(tmp_path, rows)), model=str(model), max_length=256, packing=False, batch_size=1)
    data = chat_data(config)
    assert learned(data, config) == 4 * ["A node.<|end|>"]
    whole = tokenizer.decode(data.split("train", config).__getitems__([0])["input_ids"][0])
    assert "paired with an input that provides further context. Write" in whole
    assert "### Instruction:\nSay\n\n### Input:\nit\n\n### Response:\nA node." in whole
    asked = [{"role": "user", "content": "Say\n\n### Input:\nit"}]
    prompt = AutoTokenizer.from_pretrained(data.tokenizer).apply_chat_template(asked, tokenize=False)
    assert whole.startswith(prompt + "A node.")  # so the trained model can be asked in the way in which it learned
    chats = write(tmp_path, [FORMS["messages"][0]] * 5)
    with pytest.raises(ValueError, match=r"row 1 of .*mine.jsonl .* no chat template; .* --set chat_template=FILE"):
        chat_data(configure(data=str(chats), model=str(model)))


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        ([{"question": "a", "answer": "b"}], {}, r"has the columns question, answer; it must have messages; or"),
        ([{"messages": "hello"}], {}, r"row 1 of .* has messages that are no list of messages"),
        ([{"messages": [USER]}], {}, r"row 1 of .* has no message of the role assistant to learn, but of user"),
        ([{"messages": [USER, {"role": "assistant", "content": ""}]}], {}, r"row 1 .* has no content of the assistant"),
        ([{"messages": [USER, {"role": "assistant"}]}], {}, r"row 1 of .* has no content of the assistant"),
        (
            [{"messages": [USER, {"role": "assistant", "tool_calls": [{}]}]}],
            {},
            r"row 1 .* whose call the chat template",
        ),
        ([{"messages": [{"role": "user"}, ANSWER]}], {}, r"row 1 of .* has no content of the user"),
        ([{"messages": [{**USER, "content": [{"type": "image"}]}, ANSWER]}], {}, r"has content of the user=.*image"),
        (
            [{"messages": [USER, {**ANSWER, "content": {"a": 1}}]}],
            {},
            r"row 1 .* has content of the assistant=.*: it must",
        ),
        ([{"messages": [USER, {**ANSWER, "content": "\ud83d"}]}], {}, r"row 1 of .*half a character is no text"),
        (
            [{"instruction": "a", "input": ["b"], "output": "c"}],
            {},
            r"row 1 of .* has input=.*: an input must be a string",
        ),
        (
            [FORMS["prompt"][0], FORMS["prompt of messages"][0]],
            {},
            r"there are chats and plain texts, such as What is x",
        ),
        ([{"prompt": "a", "completion": ""}], {}, r"row 1 of .* has no completion; fill it in or leave the row out"),
        ([FORMS["messages"][0]] * 5, {"max_length": 8}, r"no conversation of train has an answer in its first 8"),
        ([FORMS["messages"][0]] * 5, {"max_length": 10**6}, None),
    ],
    ids=[
        "columns",
        "no list",
        "no answer",
        "empty answer",
        "missing answer",
        "lost call",
        "missing question",
        "image",
        "object",
        "half",
        "input",
        "mixed",
        "empty",
        "cut",
        "rotates",
    ],
)
def test_data_that_cannot_be_used_is_named(
    rows: list[dict[str, Any]], changes: dict[str, Any], message: str | None, configure: Configure, tmp_path: Path
) -> None:
    config = configure(data=str(write(tmp_path, rows)), packing=False, batch_size=1, **changes)
    if message is None:
        assert chat_data(config).sizes["train"] == 4
        return
    with pytest.raises(ValueError, match=f"--data .*: .*{message}"):
        check(config)


def test_a_template_gets_texts_and_numbers_and_the_plan_names_other_columns(
    configure: Configure, tmp_path: Path
) -> None:
    template = tmp_path / "tools.jinja"
    template.write_text(
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for call in m.tool_calls or [] %}"
        "{{ call.function.arguments | tojson }}{% endfor %}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    parts = [{"type": "text", "text": "What "}, {"type": "text", "text": "is x?"}]
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 5, "y": 1.5}}}]}
    system = {"role": "system", "content": ""}
    talk = [system, {"role": "user", "content": parts}, call, {"role": "tool", "content": 7}, ANSWER]
    data = write(tmp_path, [{"messages": talk, "tools": [], "id": 1}] * 5)
    config = configure(data=str(data), chat_template=str(template), packing=False, batch_size=1, max_length=128)
    (text, *_) = learned(chat_data(config), config)
    assert text == '{"x": 5, "y": 1.5}<|end|>A node.<|end|>'
    whole = chat_data(config).split("train", config).__getitems__([0])["input_ids"][0]
    begin = "<|system|><|end|><|user|>What is x?<|end|><|assistant|>"
    assert AutoTokenizer.from_pretrained(config.model).decode(whole).startswith(begin)
    assert "data: left aside the columns tools, id" in check(config)


def test_a_model_that_cannot_be_used_is_named(configure: Configure, sample: dict[str, Any], tmp_path: Path) -> None:
    small: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    for name, config, message in (
        ("small", LlamaConfig(vocab_size=20, **small), r"its tokenizer has the token \d+, and the model ends at 19"),
        ("other", T5Config(vocab_size=2000), r"Unrecognized configuration class .*T5Config"),
    ):
        AutoTokenizer.from_pretrained(sample["model"]).save_pretrained(tmp_path / name)
        config.save_pretrained(tmp_path / name)
        with pytest.raises(ValueError, match=r"--model .* does not hold a model .*it has no weights"):
            check(configure(model=str(tmp_path / name)))
        (tmp_path / name / "model.safetensors").touch()
        with pytest.raises(ValueError, match=f"--model .*{message}"):
            check(configure(model=str(tmp_path / name)))


def test_a_model_that_mixes_packed_conversations_is_refused() -> None:
    model = OPTForCausalLM(
        OPTConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            ffn_dim=16,
            vocab_size=30,
            word_embed_proj_dim=16,
        )
    )
    with pytest.raises(ValueError, match=r"in a model of the type opt, conversations of a sample see each other"):
        llm_adapter.check_packing(model.eval())


def test_layers_of_attention_are_no_others() -> None:
    """GPT-2 has a c_proj in its attention and another in its MLP."""
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=10))
    for target, layers in (("attention", ["attn.c_attn", "attn.c_proj"]), ("mlp", ["mlp.c_fc", "mlp.c_proj"])):
        adapted = get_peft_model(deepcopy(model), LoraConfig(target_modules=llm_adapter.layers_to_adapt(model, target)))
        names_of_adapted = {name.rpartition(".h.0.")[2] for name, _ in adapted.named_modules() if "lora_A" in name}
        assert sorted({name.partition(".lora")[0] for name in names_of_adapted}) == layers


def test_a_template_is_found_from_another_folder(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers have a folder of their own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jinja").write_text("{% for m in messages %}{{ m.content }}|{% endfor %}")
    assert configure(chat_template="mine.jinja").with_full_paths().chat_template == str(tmp_path / "mine.jinja")


def test_a_packed_conversation_does_not_see_the_others(configure: Configure) -> None:
    sizes = {"train_samples": 24, "val_samples": 8, "max_length": 128}
    alone, packed = configure(packing=False, padded_lengths=1, **sizes), configure(packing=True, **sizes)
    model = llm_adapter.with_adapter(alone).eval()
    sums = []
    for config in (alone, packed):
        samples = chat_data(config).split("train", config)
        assert (len(samples) < 24) == config.packing
        batch = samples.__getitems__([*range(len(samples))])
        with torch.no_grad():
            sums.append(_token_losses(model, batch))
    one_by_one, together = (losses[losses > 0].sort().values for losses in sums)
    torch.testing.assert_close(together, one_by_one, rtol=1e-4, atol=1e-4)


def test_a_checkpoint_has_the_adapter_alone_and_loads_with_peft(
    trained: tuple[Path, dict[str, Any]], sample: dict[str, Any]
) -> None:
    folder, _ = trained
    assert (
        sum(file.stat().st_size for file in folder.iterdir())
        < (Path(sample["model"]) / "model.safetensors").stat().st_size
    )
    model, tokenizer = load_model(folder)
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(sample["model"]), folder).eval()
    merged, _ = load_model(folder, merge=True)
    assert isinstance(merged, LlamaForCausalLM)
    ids = tokenizer("What is copy in pandas?", return_tensors="pt")["input_ids"]
    base = AutoModelForCausalLM.from_pretrained(sample["model"]).eval()
    with torch.no_grad():
        logits = [m(input_ids=ids).logits for m in (model, plain, merged, base)]
    torch.testing.assert_close(logits[1], logits[0], rtol=0, atol=0)
    torch.testing.assert_close(logits[2], logits[0], rtol=0, atol=1e-4)
    assert (logits[3] - logits[0]).abs().max() > 0.01
    assert model.peft_config["default"].lora_alpha / model.peft_config["default"].r == 0.25


def test_the_model_in_mlflow_answers(trained: tuple[Path, dict[str, Any]]) -> None:
    answers = predictor(trained[0])
    (answer,) = answers.predict(answers.example)["answer"]
    assert answer
    assert "<|" not in answer
    first = answers.tokenizer(answer)["input_ids"][0]
    answers.model.generation_config.eos_token_id = [first]  # as models have one of a turn beside that of a text
    assert [*answers.predict(answers.example)["answer"]] == [answers.tokenizer.decode([first])]
    with pytest.raises(ValueError, match="must be 'prompt', but it is 'text'"):
        answers.predict(pd.DataFrame({"text": ["a"]}))


def test_perplexity_is_that_of_the_loss_and_tokens_are_counted(trained: tuple[Path, dict[str, Any]]) -> None:
    report = trained[1]
    assert report["val_perplexity"] == pytest.approx(2.718281828 ** report[names.VAL_LOSS], rel=1e-5)
    assert 30 < report[names.TOKENS_PER_SECOND] / report[names.SAMPLES_PER_SECOND] <= 64


def test_the_base_is_loaded_once_and_no_trial_changes_it(
    sample: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []
    load = llm_adapter.load_base

    def noted(*source: Any) -> Any:
        loads.append(source[0])
        return load(*source)

    monkeypatch.setattr(llm_adapter, "load_base", noted)
    monkeypatch.setattr(kept, "_entries", {})
    small = {**sample, "train_samples": 24, "val_samples": 8}
    first = reports_of(llm.train_loop, small)
    for changes in ({"rank": 2, "target": "attention"}, {"gradient_checkpointing": True}):
        reports_of(llm.train_loop, {**small, **changes})
        kept.forget_changed(lambda kind: False)
    again = reports_of(llm.train_loop, small)
    assert loads == [sample["model"]]
    assert again[0][names.VAL_LOSS] == first[0][names.VAL_LOSS]


def test_a_trial_that_does_not_fit_is_refused_before_the_sweep(configure: Configure) -> None:
    lines = check(configure())
    assert any(line.startswith("memory: about 0.0") for line in lines)
    with pytest.raises(
        ValueError, match=r"device_gb=0.001: a trial needs about 0.0.* GB .*smaller --set micro_batch or"
    ):
        check(configure(device_gb=0.001))


def test_the_plan_says_what_the_largest_trial_needs(
    configure: Configure, sample: dict[str, Any], tmp_path: Path
) -> None:
    space: dict[str, list[Any]] = {
        "rank": [2, 32],
        "dropout": [0.0, 0.1],
        "batch_size": [8, 16],
        "target": ["attention", "all"],
    }
    config = configure(target="attention", packing=False).largest(lambda name: space.get(name, []), 1)
    assert (config.rank, config.dropout, config.batch_size, config.target) == (32, 0.1, 16, "all")
    longest = int(chat_data(config).split("train", config).lengths.max())
    assert f"with 16 samples of {longest} tokens at once, rank 32" in check(config)[-1]
    assert "with 16 samples of 128 tokens" in check(replace(config, padded_lengths=1, max_length=128))[-1]
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, n_positions=64, vocab_size=2000))
    model.save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(sample["model"]).save_pretrained(tmp_path / "model")
    count = sum(parameter.numel() for parameter in model.parameters())
    assert any(
        f"gpt2, {count / 1e6:.4g} million" in line for line in check(replace(config, model=str(tmp_path / "model")))
    )


def test_a_sharded_model_needs_less_of_each_device(configure: Configure) -> None:
    (line,) = [line for line in check(configure(sharding="full")) if line.startswith("memory: ")]
    assert re.fullmatch(
        r"memory: about 0\.\d\d, 0\.\d\d, 0\.\d\d GB of a device with 2, 4, 8 workers a trial, with .*", line
    )
    large = {"hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256, "num_attention_heads": 32}
    whole, half, eighth = (memory_need(large, rank=8, samples=1, length=512, shards=n) for n in (1, 2, 8))
    assert whole.base == 2 * whole.parameters
    assert whole.base > half.base > eighth.base > whole.base / 8
    with pytest.raises(ValueError, match="sharding=full excludes ema_decay"):
        configure(sharding="full", ema_decay=0.9)
