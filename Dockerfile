# docker build -t gpulint . && docker run --rm -v "$PWD:/work:ro" gpulint check .
FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.13-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels gpulint \
    && useradd --uid 10001 --no-create-home gpulint
USER 10001
WORKDIR /work
ENTRYPOINT ["gpulint"]
CMD ["--help"]
