"""The script that maintains the catalogue of models."""

from scripts import models


def test_the_data_is_where_the_package_has_it():
    assert (models.DATA / "architectures.jsonl").is_file()
    assert (models.DATA / "catalogue.jsonl").is_file()
