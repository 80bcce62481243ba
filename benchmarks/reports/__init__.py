"""Public reports of failed and wasted jobs, with truths that were written down before gpulint was run."""
