"""Conversations and other texts for language models: tokenized once per node, with the tokens that are answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gaudi_tune.base.errors import first_line
from gaudi_tune.base.node_cache import fingerprint, prepare_once
from gaudi_tune.base.words import shown
from gaudi_tune.data.configs import ChatConfig, limited
from gaudi_tune.data.held_out import Split, divided
from gaudi_tune.data.pretrained import check_length, encoder_config, parameters_of
from gaudi_tune.data.text import (
    ABOUT_FILE,
    TEXTS_AT_A_TIME,
    TOKENIZER_FOLDER,
    is_missing,
    tables_of,
    tokenizer_of,
    written,
)
from gaudi_tune.data.text_files import Number, Table

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from gaudi_tune.data.packed_texts import PackedTexts

FORMS = (("messages",), ("prompt", "completion"), ("instruction", "output"), ("text",))
"""The columns of each form of data. The first form counts of which a table has all columns."""
COLUMNS = (*dict.fromkeys(name for form in FORMS for name in form), "input")
CHAT_FORMAT = 2
"""Version of the prepared data. It is raised when the data of the same conversations changes."""
INPUT = "\n\n### Input:\n"
ALPACA = (
    "{% for message in messages %}{% if message['role'] == 'user' %}Below is an instruction that describes a task"
    "{% if '" + INPUT + "' in message['content'] %}, paired with an input that provides further context{% endif %}. "
    "Write a response that appropriately completes the request.\n\n### Instruction:\n{{ message['content'] }}\n\n"
    "### Response:\n{% else %}{{ message['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
)
"""The prompt of Stanford Alpaca (Taori et al. 2023) as a chat template, for tokenizers without one."""


class Rendered(NamedTuple):
    """A conversation as one text."""

    text: str
    answers: list[tuple[int, int]]
    """The place of each answer in it: its first character, and the one after its last."""
    special_tokens: bool
    """Whether the tokenizer adds its own tokens, such as that for the beginning; a chat template has them."""


@dataclass(frozen=True)
class ChatData:
    """Tokenized conversations in the node's cache."""

    folder: Path
    sizes: dict[str, int]
    """Number of samples in each split: ``train``, ``val``, and ``test`` if test data is held out."""
    longest: dict[str, int]
    """Number of tokens of the longest conversation in each split."""
    tokens: dict[str, int]
    """Number of tokens in each split, without padding."""
    answer_tokens: dict[str, int]
    """Number of tokens in answers, of which the loss is the mean, in each split."""
    model: dict[str, Any]
    """The model's configuration, as ``config.json`` has it; of one that sees images, too, its part for texts."""
    parameters: int
    """Number of the model's parameters."""
    notes: list[str] = field(default_factory=list)
    """Remarks on how the data was read, for the user."""

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's folder."""
        return self.folder / TOKENIZER_FOLDER

    def most_tokens(self, config: ChatConfig) -> int:
        """Return the tokens of the longest sample that is trained on, with its padding."""
        return config.max_length if config.most_shapes == 1 else self.longest["train"]

    def split(self, name: Split, config: ChatConfig) -> PackedTexts:
        """Return the samples of a split."""
        from gaudi_tune.data.packed_texts import PackedTexts  # here, since a check needs no torch

        return PackedTexts(self.folder, name, config.max_length, config.packing, config.most_shapes)


def chat_data(config: ChatConfig) -> ChatData:
    """Return the tokenized conversations of ``config``. They are tokenized if this node has not done so yet.

    Raises:
        ValueError: The data, the model or its tokenizer cannot be used; the message says why, and what to give instead.
    """
    names = ("max_length", "packing", "train_samples", "val_samples", "hold_out")
    key = {name: getattr(config, name) for name in names}
    key |= {name: fingerprint(getattr(config, name)) for name in ("data", "model", "chat_template")}
    folder = prepare_once("chat", {**key, "format": CHAT_FORMAT}, lambda new_folder: _prepare(config, new_folder))
    return ChatData(folder=folder, **json.loads((folder / ABOUT_FILE).read_text()))


def chat_tokenizer(config: ChatConfig) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the model, with the configuration's chat template.

    Raises:
        ValueError: There is no such model, or its tokenizer cannot be used.
    """
    tokenizer = tokenizer_of(config.model)
    if not tokenizer.is_fast:
        raise ValueError(
            f"--model {config.model}: its tokenizer does not say where tokens are in a text; give a fast one"
        )
    if tokenizer.eos_token is None:
        raise ValueError(f"--model {config.model}: its tokenizer has no token for the end of a text; set eos_token")
    if config.chat_template:
        tokenizer.chat_template = Path(config.chat_template).expanduser().read_text(encoding="utf-8")
    return tokenizer


def _prepare(config: ChatConfig, folder: Path) -> None:
    from gaudi_tune.data.packed_texts import packed, write_texts

    config_of_all = encoder_config(config.model)
    model, parameters = config_of_all.get_text_config(), parameters_of(config_of_all, config.model)
    check_length(model, config.model, config.max_length)
    tokenizer = chat_tokenizer(config)
    try:
        splits, notes = _conversations(config, tokenizer)
    except ValueError as error:
        raise ValueError(f"--data {config.data}: {error}") from error
    about: dict[str, Any] = {name: {} for name in ("sizes", "longest", "tokens", "answer_tokens")}
    for split, all_rows in splits.items():
        count = config.train_samples if split == "train" else config.val_samples
        if count and count < len(all_rows):
            notes.append(limited("conversations", split, count, len(all_rows)))
        texts = _tokenize(config, tokenizer, split, all_rows[: count or None], notes)
        samples = packed([len(ids) for ids, _ in texts], config.max_length) if config.packing else None
        if (largest := max(int(ids.max()) for ids, _ in texts)) >= model.vocab_size:
            raise ValueError(
                f"--model {config.model}: its tokenizer has the token {largest}, and the model ends at "
                f"{model.vocab_size - 1}; save it again after resize_token_embeddings()"
            )
        about["longest"][split] = max(len(ids) for ids, _ in texts)
        about["sizes"][split] = len(texts if samples is None else samples)
        about["tokens"][split], about["answer_tokens"][split] = write_texts(folder, split, texts, samples)
    # Each family calls these by other names in its file, and by these as attributes.
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads")
    named_sizes = {name: getattr(model, name) for name in sizes if hasattr(model, name)}
    about |= {"model": {**model.to_dict(), **named_sizes}, "parameters": parameters, "notes": notes}
    if splits["train"][0].special_tokens:
        tokenizer.chat_template = None  # it was not used, and prompts for the trained model shall be plain texts, too
    (folder / ABOUT_FILE).write_text(json.dumps(about, default=str))
    tokenizer.save_pretrained(folder / TOKENIZER_FOLDER)


def _conversations(
    config: ChatConfig, tokenizer: PreTrainedTokenizerBase
) -> tuple[dict[Split, Sequence[Rendered]], list[str]]:
    """Return the conversations of each split, and remarks; a tokenizer without a chat template gets one if need be."""
    tables, notes = tables_of(config.data, COLUMNS)
    all_tables = [table for parts in tables.values() for table in parts]
    if unused := dict.fromkeys(name for table in all_tables for name in table.columns if name not in _form_of(table)):
        notes.append(f"left aside the columns {', '.join(map(shown, unused))}")
    if tokenizer.chat_template is None and any("instruction" in _form_of(table) for table in all_tables):
        begins = tokenizer.bos_token_id in tokenizer("")["input_ids"]  # which the tokenizer adds to plain texts
        tokenizer.chat_template = f"{tokenizer.bos_token if begins else ''}{ALPACA}"
    rows = {split: [row for table in parts for row in _rows(table, tokenizer)] for split, parts in tables.items()}
    parts = {split: part for split, part in rows.items() if part}  # an empty one is none
    if len(forms := {row.special_tokens: row.text for part in parts.values() for row in part}) > 1:
        raise ValueError(f"there are chats and plain texts, such as {shown(forms[True])}; give all one form")
    splits, remarks = divided(parts, "conversations", hold_out=config.hold_out)
    return splits, [*notes, *remarks]


def _rows(table: Table, tokenizer: PreTrainedTokenizerBase) -> Iterator[Rendered]:
    """Yield the conversations of a table, each as one text.

    Raises:
        ValueError: The table has none of the forms, or a row cannot be used.
    """
    names = _form_of(table)
    if not names:
        wanted = "; or ".join(" and ".join(form) for form in FORMS)
        raise ValueError(f"{table.place} has the columns {', '.join(table.columns)}; it must have {wanted}")
    render = _RENDER[names[0]]
    for number, values in enumerate(zip(*(table.values[name] for name in names), strict=True), 1):
        try:
            yield render(tokenizer, dict(zip(names, values, strict=True)))
        except ValueError as error:  # noqa: PERF203
            raise ValueError(f"row {number} of {table.place} (the first is 1) {error}") from error


def _form_of(table: Table) -> list[str]:
    """Return the columns of a table that are read; none if it has none of the forms."""
    form = next((form for form in FORMS if all(name in table.values for name in form)), ())
    return [*form, "input"] if "instruction" in form and "input" in table.values else [*form]


def _of_messages(tokenizer: PreTrainedTokenizerBase, row: Mapping[str, Any]) -> Rendered:
    return render_chat(tokenizer, _messages(row["messages"], "messages"))


def _of_completion(tokenizer: PreTrainedTokenizerBase, row: Mapping[str, Any]) -> Rendered:
    prompt, completion = row["prompt"], row["completion"]
    if isinstance(prompt, list):
        messages = _messages(prompt, "prompt")
        return render_chat(tokenizer, [*messages, *_messages(completion, "completion")], first=len(messages))
    return _continued(tokenizer, written(prompt, "prompt", "a prompt"), written(completion, "completion", "an answer"))


def _of_instruction(tokenizer: PreTrainedTokenizerBase, row: Mapping[str, Any]) -> Rendered:
    instruction = written(row["instruction"], "instruction", "an instruction")
    answer, addition = written(row["output"], "output", "an answer"), row.get("input")
    context = "" if is_missing(addition) else written(addition, "input", "an input").strip()
    border = INPUT if str(tokenizer.chat_template).endswith(ALPACA) else "\n\n"
    question = f"{instruction}{border}{context}" if context else instruction
    return render_chat(tokenizer, [{"role": "user", "content": question}, {"role": "assistant", "content": answer}])


def _of_text(tokenizer: PreTrainedTokenizerBase, row: Mapping[str, Any]) -> Rendered:
    return _continued(tokenizer, "", written(row["text"], "text", "a text"))


_RENDER: dict[str, Callable[[PreTrainedTokenizerBase, Mapping[str, Any]], Rendered]] = {
    "messages": _of_messages, "prompt": _of_completion, "instruction": _of_instruction, "text": _of_text,
}  # fmt: skip


def _continued(tokenizer: PreTrainedTokenizerBase, prompt: str, answer: str) -> Rendered:
    text = f"{prompt}{answer}{tokenizer.eos_token}"
    return Rendered(text, [(len(prompt), len(text))], special_tokens=True)


def _messages(value: Any, column: str) -> list[dict[str, Any]]:
    if not (value and isinstance(value, list) and all(isinstance(m, dict) and m.get("role") for m in value)):
        raise ValueError(f"has {column} that are no list of messages, each with a role and a content")
    return [_message({name: part for name, part in message.items() if part is not None}) for message in value]


def _message(parts: dict[str, Any]) -> dict[str, Any]:
    """Return a message as templates take it: its content is a text, and the arguments of its calls are numbers."""
    content = parts.pop("content", None)
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(written(part.get("text"), "text", "a text") for part in content)
    fields: dict[str, Any] = _plain(parts)
    may_be_empty = len(fields) > 1 or (isinstance(content, str) and fields["role"] != "assistant")
    if is_missing(content) and may_be_empty:  # a call of a tool, or a message of the system
        return {**fields, "content": content or ""}
    return {**fields, "content": written(content, f"content of the {fields['role']}", "it")}


def _plain(value: Any) -> Any:
    """Return a value with numbers in place of what their file wrote."""
    if isinstance(value, Number):
        return json.loads(value)
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def render_chat(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, Any]], first: int = 0) -> Rendered:
    """Return a conversation in the tokenizer's chat template. The assistant's messages are the answers.

    Where a template writes an earlier answer in another way once the conversation goes on, as some do that leave out
    the thinking, that answer is not trained.

    Args:
        tokenizer: The tokenizer.
        messages: What was said, each with a ``role`` and a ``content``.
        first: The number of the first message that may be an answer.

    Raises:
        ValueError: There is no template, or it does not take the conversation, or there is no answer.
    """
    from jinja2 import TemplateError

    if tokenizer.chat_template is None:
        raise ValueError(
            "is a conversation, and the tokenizer has no chat template; take a model for chats, or --set "
            "chat_template=FILE, or data with prompt and completion"
        )

    def text_of(part: Sequence[Mapping[str, Any]], **options: Any) -> str:
        text: str = tokenizer.apply_chat_template([*part], tokenize=False, **options)
        return text

    try:
        text, answers = text_of(messages), []
        for number, message in enumerate(messages[first:], first):
            if message["role"] == "assistant":
                earlier, silent = messages[:number], {"role": "assistant", "content": ""}
                before, after = text_of(earlier, add_generation_prompt=True), text_of([*earlier, message])
                if not message["content"] and after == text_of([*earlier, silent]):
                    raise ValueError("has a message of the assistant whose call the chat template leaves out")
                if text.startswith(before) and text.startswith(after):
                    answers.append((len(before), len(after)))
    except TemplateError as error:
        raise ValueError(f"does not fit the chat template ({first_line(error)})") from error
    if not answers:
        roles = ", ".join(dict.fromkeys(message["role"] for message in messages[first:]))
        raise ValueError(f"has no message of the role assistant to learn, but of {roles}")
    return Rendered(text, answers, special_tokens=False)


def _tokenize(
    config: ChatConfig, tokenizer: PreTrainedTokenizerBase, split: str, rows: Sequence[Rendered], notes: list[str]
) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Return each conversation's tokens, and which of them are in answers. Those without any are left out."""
    texts, cut = [], 0
    for row, (ids, begins) in zip(rows, _encoded(tokenizer, rows), strict=True):
        answers = np.zeros(len(ids), dtype=bool)
        for first, end in row.answers:
            answers |= (begins >= first) & (begins < end)
        answers[:1] = False  # nothing comes before it from which it could be told
        cut += len(ids) > config.max_length
        if answers[: config.max_length].any():
            texts.append((ids[: config.max_length], answers[: config.max_length]))
    if cut:
        notes.append(
            f"{cut} of {len(rows)} conversations of {split} have more than {config.max_length} tokens, and are cut"
        )
    if len(texts) < len(rows):
        notes.append(
            f"{len(rows) - len(texts)} of {len(rows)} conversations of {split} have no answer, and are left out"
        )
    if not texts:
        raise ValueError(
            f"--data {config.data}: no conversation of {split} has an answer in its first {config.max_length} tokens; "
            f"--set max_length=N takes more"
        )
    return texts


def _encoded(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[Rendered]
) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Yield the tokens of each text, and where they begin in it."""
    for start in range(0, len(rows), TEXTS_AT_A_TIME):
        encoded = tokenizer(
            [row.text for row in rows[start : start + TEXTS_AT_A_TIME]],
            add_special_tokens=rows[0].special_tokens,
            return_offsets_mapping=True,
            return_attention_mask=False,
        )
        for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
            yield np.asarray(ids, dtype=np.int32), np.asarray([begin for begin, _ in offsets], dtype=np.int64)
