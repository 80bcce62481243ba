"""Whether the tests fail when the code is wrong: mutants that are kept, and random ones."""
