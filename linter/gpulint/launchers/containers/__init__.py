"""What containers are given, whoever starts them: `docker run`, Docker Compose, a pod."""
