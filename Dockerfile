# The project on Intel's Gaudi container for PyTorch, whose torch, torchvision and habana packages stay as they are.
#
#   docker build --build-arg BASE_IMAGE=... --tag gaudi-tune .
#
# deploy/README.md says which image to name, and how to run this one.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}

WORKDIR /opt/gaudi-tune
COPY . .
# Ends with an error if a package of torch's or habana's is not the base image's any more.
RUN deploy/install_on_gaudi.sh python3 .venv --no-cache-dir --editable '.[recipes]'

# The image's own PYTHONPATH, libraries and habana settings stay; only its Python is put behind the environment's, in
# login shells as well, of which KubeRay's ray start is one.
ENV PATH=/opt/gaudi-tune/.venv/bin:$PATH
# Otherwise each process that imports torch, such as those that load data, imports habana as well.
ENV TORCH_DEVICE_BACKEND_AUTOLOAD=0
RUN echo "PATH=/opt/gaudi-tune/.venv/bin:\$PATH" > /etc/profile.d/zz-gaudi-tune.sh
# Not root. The user owns the default places of results and of the local MLflow store.
RUN useradd --uid 10001 --create-home gaudi && chown gaudi:gaudi . mlflow
# habana needs a folder for its logs, and its own belongs to root.
ENV HABANA_LOGS=/home/gaudi/habana_logs
USER gaudi
CMD ["python", "-m", "gaudi_tune", "doctor"]
