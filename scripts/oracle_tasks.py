"""The memory oracle for model classes other than causal decoders: the same step under another head and other labels.

    python -m scripts.oracle_tasks ../shared/tools/oracle/oracle.py TASK[:NUMBER] [the oracle's own flags]

TASK is an objective of the job: sft or speech_sft (text alone, of a class that reads images or sound too), images (one
a sequence, of NUMBER pixels each way where the model's config does not say), masked_lm, classification (NUMBER of
labels, 2), token_classification, question_answering, seq2seq (NUMBER of target tokens, those of the source),
speech_seq2seq or ctc (NUMBER of target tokens; the sequence is of samples, and the feature encoder frozen as example
scripts do; ctc_whole trains it).
Runs in an environment with the oracle's packages.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

from .oracle_images import given

AUTO = {
    "sft": "AutoModelForImageTextToText",
    "images": "AutoModelForImageTextToText",
    "masked_lm": "AutoModelForMaskedLM",
    "classification": "AutoModelForSequenceClassification",
    "token_classification": "AutoModelForTokenClassification",
    "question_answering": "AutoModelForQuestionAnswering",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "speech_seq2seq": "AutoModelForSpeechSeq2Seq",
    "speech_sft": "AutoModelForMultimodalLM",
    "ctc": "AutoModelForCTC",
    "ctc_whole": "AutoModelForCTC",
}
CTC = ("ctc", "ctc_whole")
MEL_FRAMES = 3000
"""Frames of Whisper's 30 s window (transformers WhisperFeatureExtractor)."""


class Inputs:
    """torch for the oracle's batches: labels of the task's own shape beside the token ids."""

    def __init__(self, torch: Any, task: str, number: int) -> None:
        self._torch, self._task, self._number, self._calls = torch, task, number, 0
        self.sound: tuple[tuple[int, ...], Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def zeros(self, size: Any, **kwargs: Any) -> Any:
        """Token ids, then labels, by turns."""
        self._calls += 1
        if self._task in ("seq2seq", "speech_seq2seq", *CTC) and self._calls % 2 == 0 and self._number:
            size = (size[0], self._number)
        elif self._task in ("classification", "question_answering") and self._calls % 2 == 0:
            size = (size[0],)
        elif self.sound is not None:
            size, kwargs["dtype"] = (size[0], *(self.sound[0] or size[1:])), self.sound[1]
        return self._torch.zeros(size, **kwargs)


def layers_of(model: Any) -> tuple[str, Any]:
    """The longest list of modules, of a text decoder where there is one: what the oracle probes.

    Without Mllama's layers that attend to images, which text alone passes by.
    """
    import torch

    lists = [(name, m) for name, m in model.named_modules() if isinstance(m, torch.nn.ModuleList) and len(m)]
    name, found = max(lists, key=lambda item: ("language_model" in item[0], len(item[1])))
    return name, torch.nn.ModuleList(m for m in found if not hasattr(m, "cross_attn"))


def rewired(model: Any, task: str, number: int = 0) -> None:
    """Hand the batch to the model under the names that its class has for it."""
    forward = type(model).forward
    kept: dict[str, Any] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        if task == "question_answering":
            kwargs["start_positions"] = kwargs["end_positions"] = kwargs.pop("labels")
            kwargs.pop("num_items_in_batch", None)
        if task in CTC:
            kwargs["input_values"] = kwargs.pop("input_ids")
            kwargs.pop("num_items_in_batch", None)
        if task == "speech_seq2seq" and "input_ids" in kwargs:
            kwargs["input_features"] = kwargs.pop("input_ids")
        if task == "images" and kwargs.get("past_key_values") is None:
            import torch

            kept.update(kept or given(torch, model, len(kwargs["input_ids"]), number, *kwargs["input_ids"].shape))
            kwargs.update(kept)
        return forward(model, *args, **kwargs)

    if task in ("images", "question_answering", "speech_seq2seq", *CTC):
        model.forward = call


def known_labels() -> None:
    """CTC's checks of labels, which are tensors without values: none is too large, and all of them count.

    torch's own loss wants their values too: a function takes its place that allocates what its kernels do (aten
    native/cuda/LossCTC.cu): log alpha of b x T x (2 U + 1) float32, in backward log beta and the gradient.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    function: Any = torch.autograd.Function

    class Loss(function):  # type: ignore[misc]
        """log_probs [T, b, V] -> the mean of b losses."""

        @staticmethod
        def forward(ctx: Any, log_probs: Any, states: int) -> Any:
            alpha = log_probs.new_empty((log_probs.shape[1], log_probs.shape[0], states))
            ctx.save_for_backward(log_probs, alpha)
            return log_probs.new_empty(())

        @staticmethod
        def backward(ctx: Any, *_: Any) -> Any:
            log_probs, alpha = ctx.saved_tensors
            beta = torch.empty_like(alpha)
            gradient = torch.empty_like(log_probs)
            del beta
            return gradient, None

    def ctc_loss(log_probs: Any, targets: Any, *_: Any, **__: Any) -> Any:
        return Loss.apply(log_probs, 2 * (targets.numel() // log_probs.shape[1]) + 1)

    FakeTensor.__bool__ = lambda _: False
    torch.Tensor.masked_select = lambda self, _: self.reshape(-1)
    torch.nn.functional.ctc_loss = ctc_loss


def load(path: str) -> Any:
    """The oracle's module."""
    spec = importlib.util.spec_from_file_location("oracle", path)
    assert spec is not None
    assert spec.loader is not None
    oracle: Any = importlib.util.module_from_spec(spec)
    sys.modules["oracle"] = oracle
    spec.loader.exec_module(oracle)
    oracle.decoder_layers = layers_of
    oracle.real = oracle.torch
    masks: Any = importlib.import_module("transformers.masking_utils")
    name = "_ignore_causal_mask_sdpa"
    skips = getattr(masks, name)
    # a decoder makes a mask of ones where it gets none, and finds no padding in it: so would the fake one
    setattr(masks, name, lambda m, *a, **k: skips(None if m is not None and m.is_floating_point() else m, *a, **k))
    return oracle


def plain_adapter() -> None:
    """PEFT's own model class for every task, as `get_peft_model` makes it from a config without a task type."""
    import peft

    config = peft.LoraConfig
    peft.LoraConfig = lambda **kwargs: config(**{**kwargs, "task_type": None})


def answer(task: str, number: int) -> Any:
    """The oracle's `infer` for encoder-decoders: the encoder once, then `number` tokens as `generate` takes them."""
    import torch

    def infer(a: Any, tr: Any, model: Any, cfg: Any, device: Any, res: dict[str, Any]) -> None:
        model.eval()
        with torch.no_grad():
            kwargs = {}
            if task == "speech_seq2seq":
                dtype = next(model.parameters()).dtype
                kwargs["input_features"] = torch.zeros(
                    (a.batch, cfg.num_mel_bins, MEL_FRAMES), dtype=dtype, device=device
                )
            else:
                kwargs["input_ids"] = torch.zeros((a.batch, a.seq), dtype=torch.long, device=device)
            tr.reset_peaks()
            tr.phase = "prefill"
            tr.note_peak("start")
            memory = model.get_encoder()(**kwargs)
            tr.phase = "decode"
            cache: Any = None
            for _ in range(number):
                one = torch.zeros((a.batch, 1), dtype=torch.long, device=device)
                out = model(encoder_outputs=memory, decoder_input_ids=one, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                scores = out.logits[:, -1, :].to(copy=True, dtype=torch.float32)
                del out
                del scores
            sides = (cache.self_attention_cache, cache.cross_attention_cache)
            tensors = [x for side in sides for layer in side.layers for x in (layer.keys, layer.values)]
            res["kv_cache_bytes"] = sum(x.untyped_storage().nbytes() for x in tensors)
        res["phase_peaks"] = {k: v["total"] for k, v in tr.peaks.items()}
        res["phase_peak_ops"] = {k: v["op"] for k, v in tr.peaks.items()}

    return infer


def point(oracle: Any, task: str, flags: list[str]) -> dict[str, Any]:
    """What one point allocates, as the oracle reports it."""
    plain_adapter()
    transformers: Any = sys.modules["transformers"]
    task, _, stated = task.partition(":")
    number = int(stated or 0)
    kind = getattr(transformers, AUTO[task])

    class Auto:
        """`AutoModelForCausalLM.from_config` of the task's class."""

        @staticmethod
        def from_config(config: Any, **kwargs: Any) -> Any:
            text = config.get_text_config()
            text.use_cache = False
            if not hasattr(config, "vocab_size"):
                config.vocab_size = text.vocab_size
            if task == "classification" and number:
                config.num_labels = number
            model = kind.from_config(config, **kwargs)
            rewired(model, task, number)
            if task == "speech_seq2seq":
                oracle.torch.sound = ((config.num_mel_bins, MEL_FRAMES), next(model.parameters()).dtype)
            if task == "ctc":
                model.freeze_feature_encoder()
            if task in CTC:
                oracle.torch.sound = ((), next(model.parameters()).dtype)
            return model

    transformers.AutoModelForCausalLM = Auto
    oracle.torch = Inputs(oracle.real, task, number)
    oracle.infer = answer(task, number) if task.endswith("seq2seq") else oracle.infer
    if task in CTC:
        known_labels()
    found: dict[str, Any] = oracle.run(oracle.parser().parse_args(flags))
    return found


if __name__ == "__main__":
    print(json.dumps(point(load(sys.argv[1]), sys.argv[2], sys.argv[3:])))
