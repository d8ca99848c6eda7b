# The image steersman.io/steer: the one binary, and what it needs to run.
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --profile dist --locked --package steersman-steer --bin steer \
    && cp target/dist/steer /steer \
    && mkdir /data

FROM debian:bookworm-slim
COPY --from=build /steer /usr/local/bin/steer
# A volume made from it belongs to the user below.
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/steer"]
# As in `steer up`, a container of this image without arguments answers HTTP requests.
CMD ["serve-echo"]
