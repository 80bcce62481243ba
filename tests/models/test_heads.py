"""Task heads on the tables of models; the counts are those of `num_parameters()` of Transformers' classes."""

from math import prod

import pytest

from gpulint.models.heads import for_task
from gpulint.models.resolve import resolve


@pytest.mark.parametrize(
    ("name", "task", "count"),
    [
        ("FacebookAI/xlm-roberta-base", "question_answering", 277_454_594),
        ("FacebookAI/xlm-roberta-base", "sft", 278_295_186),
        ("FacebookAI/roberta-base", "question_answering", 124_056_578),
        ("google-bert/bert-base-uncased", "classification", 109_483_778),
    ],
)
def test_parameters_with_the_head_of_a_task(name, task, count):
    model = for_task(resolve(name), task, 2)
    assert sum(prod(tensor.shape) * len(tensor.layers or (0,)) for tensor in model.tensors) == count
