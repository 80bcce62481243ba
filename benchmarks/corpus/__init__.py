"""How gpulint fares on a folder of published configs."""
