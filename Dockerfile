# syntax=docker/dockerfile:1
#
#   docker build --target full --build-arg BASE=your/training:image -t training-with-preflight .
#   docker build --target light -t preflight .
#   docker run … IMAGE torchrun --nproc-per-node 8 train.py
#
# full    your training image and preflight in front of whatever it starts: the image that the job
#         runs in is the one to be looked at. No package that is there already is replaced.
# light   no torch: what can be told without it (`--level quick`), e.g. in an init container

ARG PYTHON=python:3.12-slim-bookworm
ARG BASE=pytorch/pytorch:latest


FROM ${PYTHON} AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
# checks/ and the link to it: neither is whole without the other
COPY checks checks
COPY preflight preflight
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .


FROM ${BASE} AS full
# the base may be from any distribution, with root or another user as its own
USER 0
# what the base lacks is added, held to the versions that it has: its own packages stay as they are
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_NO_CACHE_DIR=1 \
    && python3 -m pip install --no-deps /wheels/*.whl \
    && if ! (cd / && python3 -c "import typer, rich, psutil, pynvml, ClusterShell") \
         || ! command -v py-spy \
         || ! (cd / && { python3 -c "import tomllib" || python3 -c "import tomli"; }); then \
         python3 -m pip list --format=freeze --exclude cluster-preflight > /tmp/base.txt \
         && python3 -m pip install --constraint /tmp/base.txt /wheels/*.whl \
         && rm /tmp/base.txt; \
       fi \
    && mkdir -p -m 1777 /home/job \
    && preflight --version
# a number need not have a name, which torch.compile wants to know, and no home: nor has a pod's
# own runAsUser
ENV USER=job HOME=/home/job
# no module is taken from the job's working directory in the place of one of ours
ENV PYTHONSAFEPATH=1
USER 10001:10001
# exec form: preflight becomes the command when it is READY, so the trainer is PID 1 and gets its
# signals. No CMD: what is to be started is the pod's or the caller's to say.
ENTRYPOINT ["preflight", "gate", "--"]


FROM ${PYTHON} AS light
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    pip install --no-cache-dir /wheels/*.whl \
    && preflight --version
# a gate of the standard level would never open here: it can't judge a torch that isn't there
ENV PREFLIGHT_LEVEL=quick
ENV PYTHONSAFEPATH=1
USER 10001:10001
ENTRYPOINT ["preflight", "gate", "--"]
