"""A Terraform provider whose resources are files, so that a test can change them behind its back."""

import os
import sys

from tf import types
from tf.iface import Provider
from tf.runner import run_provider
from tf.schema import Attribute, Schema


class Text:
    def __init__(self, provider):
        self.provider = provider

    @classmethod
    def get_name(cls):
        return "text"

    @classmethod
    def get_schema(cls):
        return Schema(
            attributes=[
                Attribute("path", types.String(), required=True, requires_replace=True),
                Attribute("content", types.String(), required=True),
            ]
        )

    def validate(self, diags, type_name, config):
        pass

    def plan(self, context, current, planned):
        return planned

    def create(self, context, planned):
        with open(planned["path"], "w", encoding="utf-8") as file:
            file.write(planned["content"])
        return planned

    def update(self, context, current, planned):
        return self.create(context, planned)

    def read(self, context, current):
        try:
            with open(current["path"], encoding="utf-8") as file:
                return {"path": current["path"], "content": file.read()}
        except FileNotFoundError:
            return None

    def delete(self, context, current):
        try:
            os.remove(current["path"])
        except FileNotFoundError:
            pass

    def import_(self, context, id):
        return self.read(context, {"path": id})

    def upgrade(self, context, version, old):
        return old


class Files(Provider):
    def get_model_prefix(self):
        return "file_"

    def get_provider_schema(self, diags):
        return Schema(attributes=[])

    def full_name(self):
        return "example.test/test/file"

    def validate_config(self, diags, config):
        pass

    def configure_provider(self, diags, config):
        pass

    def get_data_sources(self):
        return []

    def get_resources(self):
        return [Text]


run_provider(Files(), sys.argv)
