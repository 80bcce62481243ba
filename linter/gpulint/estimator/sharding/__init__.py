"""Who divides the state of a training job, and what gathering and reducing it takes."""
