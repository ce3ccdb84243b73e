# habitus: docker build -t habitus .    Another base: --build-arg BASE=…, with Python 3.11 or newer and venv.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python3 -m venv /opt/habitus \
 && /opt/habitus/bin/pip install --no-cache-dir -c constraints.txt ".[all]"

FROM ${BASE}
# Untrusted code needs user namespaces, which most container runtimes forbid; without them it is refused, all else works.
COPY --from=build /opt/habitus /opt/habitus
RUN useradd --uid 1000 --create-home habitus \
 && install -d -o habitus -g habitus -m 0700 /home/habitus/.habitus
ENV PATH=/opt/habitus/bin:$PATH \
    HABITUS_HOME=/home/habitus/.habitus \
    HABITUS_LOG=json \
    PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
WORKDIR /home/habitus
# The root may be read-only: only the home and /tmp are written to.
VOLUME ["/home/habitus/.habitus", "/tmp"]
EXPOSE 8765
HEALTHCHECK --interval=10s --start-period=30s \
  CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8765/healthz')"]
ENTRYPOINT ["habitus"]
CMD ["up", "--host", "0.0.0.0"]
