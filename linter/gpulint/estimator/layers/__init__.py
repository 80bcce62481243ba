"""How the layers of a model are computed, from their modelling code."""
