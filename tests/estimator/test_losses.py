"""The vocabulary-wide tensors of each loss and release, against arithmetic done by hand.

TV is tokens x vocabulary. A checkpointed model with a large vocabulary has its peak at the loss.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpulint.estimator.activations import instants
from gpulint.estimator.budget import PARTS, bounded
from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.forward.network import network
from gpulint.estimator.frameworks.release import release
from gpulint.estimator.losses import answers
from gpulint.estimator.losses.context import LossContext
from gpulint.estimator.losses.losses import smoothed, tiled
from gpulint.estimator.losses.pieces import lengths
from gpulint.estimator.tape.ledger import END
from gpulint.estimator.tape.tape import Tape
from gpulint.estimator.tape.tensor import Parameter
from gpulint.job.job import Adapter, Job, Loss, Parallelism, Precision, Rl, Weights
from gpulint.models.remote import normed_head
from gpulint.models.resolve import resolve

B, S, V = 2, 256, 128256
TV = B * S * V
SHIFTED = B * (S - 1) * V


def logits(model, phase, model_type="llama", **fields) -> int:
    """The most bytes of vocabulary-wide tensors alive at once in a phase."""
    fields.setdefault("weights", Weights("bfloat16"))
    job = Job(micro_batch_size=B, sequence_length=S, activation_checkpointing="full", **fields)
    found = instants(job, model._replace(model_type=model_type))
    return max(item.logits for item in found if item.phase == phase)


@pytest.mark.parametrize(
    ("version", "model_type", "whole", "shifted"),
    [
        ("5.0", "llama", 2 + 4 + 4, 0),  # 16-bit logits, their float32 copy, log-probabilities
        ("4.48.1", "llama", 2 + 4, 4 + 4),  # a shifted float32 copy, of which the log-probabilities are
        ("4.45.2", "llama", 4, 4 + 4),  # the model made them float32 itself
        ("4.47.1", "mistral", 4, 4 + 4),  # and mistral went on with that to 4.47
        ("4.48.1", "persimmon", 2, 2 + 2),  # never float32: logits, shifted copy, log-probabilities
        ("4.49.0", "persimmon", 2 + 4 + 4, 0),
    ],
)
def test_the_loss_of_each_release(llama_8b, version, model_type, whole, shifted):
    """A shifted copy lacks each sequence's last row."""
    found = logits(llama_8b, "loss", model_type, versions={"transformers": version})
    assert found == whole * TV + shifted * SHIFTED


def test_the_first_qwens_own_code_never_widens_logits(decoder):
    model = decoder(layers=2, kv_channels=128, no_bias=True)
    assert logits(model, "loss", versions={"transformers": "5.0"}) == 2 * TV + (2 + 2) * SHIFTED


@pytest.mark.parametrize(
    ("kept", "bytes_per_element"),
    [(False, 2 + 2 + 2), (True, 2 + 2 + 2 + 2)],  # log-probabilities and two gradients; the named logits
)
def test_a_loop_of_its_own_over_litgpts_layers_takes_the_cross_entropy_in_16_bits(kept, bytes_per_element, llama_8b):
    """Thunder's benchmark calls `cross_entropy(logits.reshape(...), targets)` (benchmark_litgpt.py)."""
    loss = Loss(upcast="never", kept=kept)
    found = logits(llama_8b, "backward", framework="litgpt", objective="pretrain", loss=loss)
    assert found == pytest.approx(bytes_per_element * TV, rel=0.01)


def test_torch_s_loss_over_a_part_of_the_vocabulary_takes_one_copy_more(llama_8b):
    divided = {"framework": "torchtitan", "parallelism": Parallelism(tensor=8, sequence=True)}
    whole = {"framework": "torchtitan"}
    assert logits(llama_8b, "loss", **whole) == (2 + 4 + 4) * TV
    assert logits(llama_8b, "backward", **whole) == (4 + 4 + 4) * TV
    # the logits, less their maximum, and the result; backward: result, targets, exponential or product, and sum
    assert logits(llama_8b, "loss", **divided) == (2 + 4 + 4 + 4) * TV // 8
    assert logits(llama_8b, "backward", **divided) == (4 + 4 + 4 + 4) * TV // 8


@pytest.mark.parametrize(("objective", "sequences", "named"), [("sft", 1, 4), ("grpo", 1, 4), ("orpo", 2, 0)])
def test_openrlhf_makes_the_logits_of_every_token_float32(llama_8b, objective, sequences, named):
    """flash-attn's gradient lies beside what it saved; the layers go backward while the output has a name, or none."""
    fields = {"framework": "openrlhf", "objective": objective, "rl": Rl(prompt_length=128, completion_length=128)}
    tokens = sequences * TV
    assert logits(llama_8b, "forward", **fields) == (2 + 4) * tokens
    assert logits(llama_8b, "loss", **fields) == 4 * tokens
    assert logits(llama_8b, "backward", **fields) == (4 + 4) * tokens
    job = Job(micro_batch_size=B, sequence_length=S, weights=Weights("bfloat16"), **fields)
    assert min(item.logits for item in instants(job, llama_8b) if item.phase == "backward") == named * tokens


def test_autocast_widens_what_log_softmax_makes_of_a_narrow_family(llama_8b):
    """Logits, their shifted copy, log-probabilities, and these in float32; then the returned logits in float32."""
    fields = {"versions": {"transformers": "4.48.1"}, "precision": Precision("bfloat16")}
    loss, behind = (logits(llama_8b, phase, "persimmon", **fields) for phase in ("loss", "backward"))
    assert loss == 2 * TV + (2 + 2 + 4) * SHIFTED
    assert behind == (2 + 4) * TV + (2 + 4) * SHIFTED


def test_a_kernel_in_the_place_of_torchs_overwrites_what_it_is_given(llama_8b):
    fields = {"versions": {"transformers": "4.48.1"}, "loss": Loss("unsloth_cross_entropy")}
    assert logits(llama_8b, "loss", **fields) == (2 + 4) * TV + 4 * SHIFTED
    assert logits(llama_8b, "backward", **fields) == 4 * TV + 4 * SHIFTED  # its gradient, spread over zeros


def test_a_model_that_unsloth_loads_leaves_the_logits_as_they_are(llama_8b):
    fields = {"versions": {"transformers": "4.48.1"}, "loss": Loss("unsloth_cross_entropy"), "framework": "unsloth"}
    assert logits(llama_8b, "loss", **fields) == logits(llama_8b, "backward", **fields) == 2 * TV


@pytest.mark.parametrize(
    ("tokens", "release", "held"),
    [(8192, "2026.8.19", 8192), (8448, "2026.8.19", 2112), (65536, "2026.8.19", 8192), (65536, "2026.6.7", 65536)],
)
def test_unsloth_s_fused_loss_holds_a_chunk_of_four_gib_and_its_gradient(llama_8b, tokens, release, held):
    job = Job(micro_batch_size=1, sequence_length=tokens, activation_checkpointing="full", weights=Weights("bfloat16"))
    job.loss, job.versions = Loss("unsloth"), {"unsloth": release}
    found = instants(job, llama_8b)
    assert max(item.logits for item in found) == (2 + 2) * held * V


@pytest.mark.parametrize(
    ("release", "gpu", "chunks"),
    [("2025.8.10", None, 4), ("2025.8.10", "t4", 4), ("2025.12.9", None, 1), ("2025.12.9", "t4", 1)],
)
def test_unsloth_s_loss_of_8192_tokens_had_chunks_of_a_gib_and_then_of_what_the_card_may_spare(
    llama_8b, release, gpu, chunks
):
    job = Job(micro_batch_size=1, sequence_length=8192, activation_checkpointing="full", weights=Weights("bfloat16"))
    job.loss, job.versions, job.hardware.gpu = Loss("unsloth"), {"unsloth": release}, gpu
    assert max(item.logits for item in instants(job, llama_8b)) == (2 + 2) * 8192 // chunks * V


def test_half_of_a_t4_takes_fewer_tokens_at_once_than_half_of_an_a100(llama_8b):
    held = []
    for gpu in ("t4", "a100-80gb"):
        job = Job(
            micro_batch_size=1, sequence_length=65536, activation_checkpointing="full", weights=Weights("bfloat16")
        )
        job.loss, job.versions, job.hardware.gpu = Loss("unsloth"), {"unsloth": "2026.6.7"}, gpu
        held.append(max(item.logits for item in instants(job, llama_8b)))
    assert held == [(2 + 2) * 16384 * V, (2 + 2) * 65536 * V]


@pytest.mark.parametrize(("autocast", "width"), [(None, 4), ("bfloat16", 2)])
def test_unsloth_s_fused_loss_computes_in_autocast_s_width_over_a_float32_model(llama_8b, autocast, width):
    fields = {"loss": Loss("unsloth"), "weights": Weights("float32"), "precision": Precision(autocast)}
    assert logits(llama_8b, "loss", **fields) == 2 * width * TV


def test_the_returned_logits_are_copied_to_float32_under_autocast(llama_8b):
    fields = {"precision": Precision("bfloat16"), "loss": Loss("liger_cross_entropy")}
    job = Job(micro_batch_size=B, sequence_length=S, weights=Weights("bfloat16"), **fields)
    without = Job(micro_batch_size=B, sequence_length=S, weights=Weights("bfloat16"), loss=fields["loss"])
    peaks = [max(i.logits for i in instants(j, llama_8b) if i.phase == "backward") for j in (job, without)]
    assert peaks[0] - peaks[1] >= 3 * TV


def test_compiled_it_keeps_the_logits_and_two_numbers_a_row(llama_8b):
    assert logits(llama_8b, "loss", compile=True) == 2 * TV
    assert logits(llama_8b, "backward", compile=True) == (2 + 2) * TV


PIECE = 64
QUARTER = PIECE * V


def test_pieces_of_the_logits(llama_8b):
    """torchtune's: eight pieces of 64 rows, each upcast in its turn; every piece keeps its log-probabilities."""
    loss = Loss("chunked", PIECE, "pieces", upcast="loss")
    assert logits(llama_8b, "loss", loss=loss) == 2 * TV + 4 * TV + 4 * QUARTER


def test_pieces_that_are_compiled_keep_no_log_probabilities(llama_8b):
    loss = Loss("chunked", PIECE, "pieces", compiled=True)
    assert logits(llama_8b, "loss", loss=loss) == 2 * TV
    assert logits(llama_8b, "backward", loss=loss) == 2 * TV + 2 * QUARTER  # a piece goes as its gradient is made


def test_whole_logits_taken_apart_are_put_together_again(llama_8b):
    """axolotl's: the logits, the gradients of all pieces, and their concatenation."""
    loss = Loss("chunked", PIECE, "whole", compiled=True)
    assert logits(llama_8b, "loss", loss=loss) == 2 * TV
    assert logits(llama_8b, "backward", loss=loss) == (2 + 2) * TV


def test_never_upcast(llama_8b):
    """LitGPT's: cross entropy of 16-bit pieces."""
    loss = Loss("chunked", PIECE, "pieces", upcast="never")
    assert logits(llama_8b, "loss", loss=loss) == (2 + 2) * TV


def test_a_loop_that_names_the_logits_holds_two_steps_of_them(llama_8b):
    loss = Loss("chunked", PIECE, "pieces", upcast="never", kept=True)
    plain = Loss("chunked", PIECE, "pieces", upcast="never")
    assert logits(llama_8b, "forward", loss=loss) == logits(llama_8b, "forward", loss=plain) + 2 * TV
    assert logits(llama_8b, "backward", loss=loss) >= logits(llama_8b, "backward", loss=plain) + TV


def test_one_piece_at_a_time(llama_8b):
    """torchtitan's: at a piece's head the gradients of its logits and of its hidden states, beside the head's two."""
    job = Job(micro_batch_size=B, sequence_length=S, weights=Weights("bfloat16"), activation_checkpointing="full")
    job.loss = Loss("chunked", PIECE, "passes")
    once = max(i.activations + i.logits for i in instants(job, llama_8b) if i.phase == "loss")
    job.loss = Loss("chunked", 2 * PIECE, "passes")
    twice = max(i.activations + i.logits for i in instants(job, llama_8b) if i.phase == "loss")
    assert twice - once == 2 * QUARTER + 2 * PIECE * 4096
    assert once < 2 * 2 * V * 4096 + 3 * QUARTER + 100 * B * S * 4096


def test_the_last_piece_is_what_is_left(llama_8b):
    job = Job(micro_batch_size=1, sequence_length=100, weights=Weights("bfloat16"), loss=Loss("chunked", 32, "pieces"))
    assert lengths(100, network(job, llama_8b).dims) == [32, 32, 32, 4]


class TestRelease:
    def test_an_unstated_version_is_the_newest(self):
        assert release(Job(), "gpt_bigcode") == release(Job(versions={"transformers": "5.23"}), "gpt_bigcode")

    def test_gpt_bigcode_caches_keys_in_training_until_4_53(self, llama_8b):
        """The cache is a view of the projection: for every layer q, k and v stay alive beside the checkpoint."""
        old, new = Job(versions={"transformers": "4.52.4"}), Job(versions={"transformers": "4.53.0"})
        assert release(old, "gpt_bigcode").caches
        assert not release(old, "gpt2").caches
        assert not release(new, "gpt_bigcode").caches


class TestLogProbabilities:
    """`selective_log_softmax` of TRL, against what torch.profiler saw of it: bytes an element of the logits."""

    @pytest.mark.parametrize(
        ("dtype", "sequences", "backward"),
        [
            ("bfloat16", 4, 4),  # the last gradients of four sequences, and their stack
            ("bfloat16", 1, 6),  # log-softmax, the gather's zeros, the softmax's gradient
            ("float32", 4, 12),  # logits, the stacked gradients, the gather's zeros
            ("float32", 1, 16),  # logits and, for one sequence alone, three temporaries
        ],
    )
    def test_backward(self, llama_8b, dtype, sequences, backward):
        job = Job(objective="grpo", micro_batch_size=sequences, weights=Weights(dtype))
        job.rl.prompt_length, job.rl.completion_length = 1, S - 1
        found = max(i.logits for i in instants(job, llama_8b) if i.phase == "backward")
        assert found == backward * sequences * S * V

    def test_float32_logits_of_autocast_replace_the_narrow_ones(self, llama_8b):
        job = Job(objective="grpo", micro_batch_size=4, weights=Weights("bfloat16"), precision=Precision("bfloat16"))
        job.rl.prompt_length, job.rl.completion_length = 1, S - 1
        found = instants(job, llama_8b)
        assert max(i.logits for i in found if i.phase == "loss") == (2 + 4) * 4 * S * V
        assert max(i.logits for i in found if i.phase == "backward") == 12 * 4 * S * V


def test_parts_of_a_float32_head_are_cast_for_every_tile_of_trls_fused_head():
    """8192 tokens in tiles of 4096 and 32768 words; the backward pass names two parts of the head at once.

    Without casts the backward pass has most where the gradient of the hidden states is narrowed.
    """
    rows, width = 8192, 64
    peaks = {}
    for e in (2, 4):
        tape = Tape()
        tape.autocast = 2
        tape.enter(0)
        h = tape.new(rows * width, 2)
        tape.source(h)
        loss = tiled(h, Parameter(V * width, e, trainable=False), rows, tape, 4096)
        tape.backward(loss, tape.new(1, 4))
        tape.enter(END, backward=True)
        peaks[e] = {backward: max(x.live for x in tape.events if x.backward == backward) for backward in (False, True)}
    part = 2 * 32768 * width
    assert peaks[4][False] - peaks[2][False] == part
    assert peaks[4][True] - peaks[2][True] == 2 * part - 2 * rows * width


@pytest.mark.parametrize("words", [257, 32000])
def test_the_buffer_of_trls_tiles_is_no_narrower_for_a_small_vocabulary(words):
    rows, width = 512, 64
    tape = Tape()
    tape.enter(0)
    h = tape.new(rows * width, 2)
    tape.source(h)
    before = tape.live
    tiled(h, Parameter(words * width, 2, trainable=False), rows, tape, 4096)
    tape.enter(END)
    saved_and_statistics = rows * (2 * width + 2 * 8 + 6 * 4)
    assert tape.events[0].live - before == 2 * rows * 32768 + saved_and_statistics


@pytest.mark.parametrize(("e", "backward"), [(2, 8), (4, 12)])
def test_smoothed_labels_hold_four_copies_of_the_logits(e, backward):
    """Logits, their slice, its log-softmax and that negated; backward has these two, a gather's zeros and a sum's."""
    rows, words = 8, 1000
    tape = Tape()
    tape.enter(0)
    logits = tape.new(rows * words, e)
    tape.source(logits)
    loss = smoothed(logits, 2, words, tape)
    gradient = tape.new(1, 4)
    size = (rows - 2) * words
    tape.enter(1)
    assert tape.events[0].live == pytest.approx(e * rows * words + 3 * e * size, rel=0.001)
    del logits
    tape.backward(loss, gradient)
    tape.enter(END, backward=True)
    most = max(event.live for event in tape.events if event.backward)
    assert most == pytest.approx(e * rows * words + backward * size, rel=0.002)


@pytest.mark.parametrize(
    ("rows", "sequences", "objective", "entropies", "elements"),
    [
        (65, 5, "dpo", False, 60 // 2),
        (65, 5, "kto", False, 60 + 60 // 2),
        (65, 1, "dpo", False, 64 // 2),
        (65, 5, "dpo", True, 60 + 3 * 65),
        (65, 1, "dpo", True, 3 * 65),
        (301, 7, "kto", True, 294 + 3 * answers.ENTROPY_ROWS),
        (1001, 7, "kto", True, 994 + 994 // 2),
    ],
)
def test_what_trl_logs_of_answers_is_made_beside_their_logits(rows, sequences, objective, entropies, elements):
    """Rows of 1,009 words in 16 bits; the last row of each sequence has no label. Three steps of the entropies stand
    beside what is laid out anew for several sequences; means are of halves, KTO's of copies.
    """

    class Context(LossContext):
        head = SimpleNamespace(out=1009)

    words, tape = 1009, Tape()
    tape.enter(1)
    logits = tape.new(rows * words, 2)
    loss, job = SimpleNamespace(means=True, entropies=entropies), Job(objective=objective)
    dims = SimpleNamespace(job=job, loss=loss, scored=rows, batch=sequences)
    state = SimpleNamespace(live_refs=[logits.storage])
    answers.logged(Context(None, dims, state, tape, 1))
    tape.enter(END)
    assert tape.events[-1].live - 2 * rows * words == 2 * words * elements


class TestWholeLogSoftmax:
    """`logits[:, :-1].log_softmax(-1).gather(...)`, bytes an element of the logits of both answers.

    LLaMA-Factory's step, written down again on the memory oracle's fake GPU, had 12.0 at the end of its backward pass
    and 16.0 in the reference's pass, where the CUDA kernel lays the slice out anew (4 more).
    """

    @staticmethod
    def of(model, how, phase, **fields) -> float:
        loss = Loss(log_softmax=how)
        job = Job(micro_batch_size=B, sequence_length=S, weights=Weights("bfloat16"), loss=loss, **fields)
        return max(i.logits for i in instants(job, model) if i.phase == phase) / (2 * TV)

    def test_float32_logits_stay_named_through_the_pass_of_the_reference(self, llama_8b):
        assert self.of(llama_8b, "float32", "forward", objective="dpo") == 4 + 4 + 4 + 4 + 4
        assert self.of(llama_8b, "float32", "backward", objective="dpo") == 12
        assert self.of(llama_8b, "float32", "backward", objective="orpo") == 12
        assert self.of(llama_8b, "float32", "loss", objective="orpo") == 4 + 4 + 4

    def test_unpaired_answers_have_one_pass_more(self, llama_8b):
        assert self.of(llama_8b, "float32", "forward", objective="kto") == (8 + 4 + 12) / 2

    def test_logits_of_trls_policy_are_named_while_the_reference_runs(self, llama_8b):
        """16 bits: the saved log-softmax of every row, the reference's logits and two rows of theirs, the last still
        named, and the policy's own logits."""
        before, since = (
            self.of(llama_8b, "rows", "forward", objective="dpo", rl=Rl(reference_apart=apart))
            for apart in (False, True)
        )
        assert (before, since) == (2 + 2 + 4 / 4, 2 + 2 + 2 + 4 / 4)

    def test_orpo_takes_the_likelihood_of_the_chosen_answers_too(self, llama_8b):
        """As the steps of trl 1.16 on the memory oracle's fake GPU: 5 bytes, and 14 of float32 logits (and 4 that only
        fake tensors have, whose scatter_add is not in place)."""
        wide = {"precision": Precision("bfloat16")}
        assert self.of(llama_8b, "rows", "backward", objective="orpo") == 5
        assert self.of(llama_8b, "rows", "loss", objective="orpo") == 5
        assert self.of(llama_8b, "rows", "backward", objective="orpo", **wide) == 14

    def test_older_releases_of_trl_take_them_in_their_own_width(self, llama_8b):
        assert self.of(llama_8b, "whole", "backward", objective="dpo") == 6
        assert self.of(llama_8b, "rows", "backward", objective="dpo") < 6

    def test_a_value_head_stands_beside_a_head_that_nobody_uses(self, llama_8b):
        job = Job(objective="reward", micro_batch_size=B, sequence_length=S, weights=Weights("bfloat16"))
        idle = job.with_changes({"loss.logits_unused": True})
        assert not any(i.logits for i in instants(job, llama_8b))
        assert max(i.logits for i in instants(idle, llama_8b)) == (2 + 4) * 2 * TV
        plain, more = (estimate_job(item, llama_8b, None).components for item in (job, idle))
        assert more["weights"] - plain["weights"] == 2 * V * 4096
        assert more["optimizer"] == plain["optimizer"]


def test_a_loss_in_more_parts_than_can_be_laid_out_is_not_estimated(llama_8b):
    bounded(PARTS)
    job = Job(micro_batch_size=1, sequence_length=1 << 40, loss=Loss(chunk=1))
    with pytest.raises(NotEstimable, match="parts"):
        lengths(1 << 40, network(job, llama_8b).dims)


@pytest.mark.parametrize(
    ("release", "kind", "chunk", "piece"),
    [
        ("0.3.0", "columns", 2048, 16384 * 2048),  # all tokens
        ("0.4.0", "columns", 8192, 16384 * 8192),
        ("0.8.0", "blocks", 4096, 4096 * 8192),
        ("0.8.0", "blocks", 10**6, 16384 * 8192),
    ],
)
def test_prime_rl_s_head_holds_two_pieces_by_name(llama_8b, release, kind, chunk, piece):
    """Forward: logits, what scales them, two temporaries beside each other; backward: what the piece before left."""
    job = Job(
        micro_batch_size=1,
        sequence_length=16384,
        weights=Weights("bfloat16"),
        activation_checkpointing="full",
        objective="grpo",
        rl=Rl(vllm="server"),
        loss=Loss("chunked", chunk, kind),
        framework="prime-rl",
        versions={"prime-rl": release},
    )
    found = instants(job, llama_8b)
    assert max(item.logits for item in found if item.phase == "loss") == (2 + 4 + 4 + 4) * piece
    assert max(item.logits for item in found if item.phase == "backward") == (2 + 4 + 4 + 4 + 4 + 4) * piece


def test_prime_rl_once_made_a_gradient_of_a_frozen_head(llama_8b):
    def backward(release: str) -> int:
        job = Job(
            micro_batch_size=B,
            sequence_length=S,
            method="lora",
            adapter=Adapter("lora", 8, targets=["q_proj"]),
            weights=Weights("bfloat16"),
            activation_checkpointing="full",
            loss=Loss("chunked", 64, "blocks"),
            framework="prime-rl",
            versions={"prime-rl": release},
        )
        return max(item.activations + item.logits for item in instants(job, llama_8b) if item.phase == "backward")

    assert backward("0.7.0") - backward("0.8.0") > V * 4096


@pytest.mark.parametrize(("autocast", "width"), [(None, 2), ("bfloat16", 4 + 2)])
def test_a_head_whose_rows_are_brought_to_one_length(autocast, width):
    """Baichuan 2's: the quotient, float32 under autocast beside its 16-bit copy; Baichuan 1 has none."""
    own = resolve("baichuan-inc/Baichuan2-7B-Chat")
    plain = own._replace(id="ours/same-shape", repository="ours/same-shape")
    job = Job(micro_batch_size=1, sequence_length=64, weights=Weights("bfloat16"), precision=Precision(autocast))
    job.method, job.adapter = "lora", Adapter(targets=["W_pack"])
    peaks = [
        max(item.activations for item in instants(job, model) if item.phase == "forward") for model in (own, plain)
    ]
    head = own.shape.vocabulary * own.shape.hidden
    assert width * head - 2**26 < peaks[0] - peaks[1] <= width * head + 2**26
    assert not normed_head({}, "baichuan-inc/Baichuan-7B")
    assert normed_head({"model_type": "baichuan", "vocab_size": 125696}, "./models/ours")
