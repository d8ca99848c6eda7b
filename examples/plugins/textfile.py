#!/usr/bin/env python3
"""A plugin in Python: each resource is a text file.

Settings:   folder    where the files are
Parameters: content   what the file says
            seconds   how long making it takes, to show what takes time

It needs nothing but Python. docs/plugins.md is the contract.
"""

import json
import os
import sys
import time


class Refused(Exception):
    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


settings = {}


def path(task):
    folder = settings.get("folder")
    if not folder:
        raise Refused("permanent", "the setting folder is missing; put it beside command in PLUGIN_CONFIGS")
    # Names of resources are made of letters, digits and dashes: no path can hide in one.
    return os.path.join(folder, f"{task['name']}.txt")


def found(task):
    try:
        with open(path(task), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write(task):
    # Written beside and renamed: there is never half a file, however often this is repeated.
    target = path(task)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    before = found(task)
    with open(f"{target}.new", "w", encoding="utf-8") as file:
        file.write(task["parameters"].get("content", ""))
    os.replace(f"{target}.new", target)
    changes = {"created": 1} if before is None else {"updated": 1}
    return {"state": "done", "changes": changes, "text": f"wrote {target}", **outputs(task)}


def outputs(task):
    return {"outputs": {"path": path(task), "bytes": len(found(task) or "")}}


def describe(params):
    return {
        "contract": "1.0",
        "name": "textfile",
        "version": "1.0.0",
        "capabilities": ["plan", "detect_drift", "outputs", "cancel"],
    }


def configure(params):
    settings.update(params["settings"])
    return {}


def validate(params):
    path(params["task"])
    content = params["task"]["parameters"].get("content", "")
    if not isinstance(content, str):
        raise Refused("permanent", "content must be a text")
    return {}


def plan(params):
    task = params["task"]
    there = found(task)
    if task["operation"] == "destroy":
        return {"needed": "yes", "changes": {"deleted": 1}, "text": "1 to delete"}
    if there == task["parameters"].get("content", ""):
        return {"needed": "no", "text": "nothing to change"}
    change = "created" if there is None else "updated"
    return {"needed": "yes", "changes": {change: 1}, "text": f"1 to be {change}"}


def apply(params):
    task = params["task"]
    seconds = task["parameters"].get("seconds", 0)
    if seconds:
        # What takes time is not waited for: the checkpoint is kept, and Resume comes later,
        # perhaps to another process.
        until = time.time() + seconds
        return {"state": "running", "checkpoint": {"until": until}, "after_seconds": 1, "message": "under way"}
    return write(task)


def resume(params):
    checkpoint = params.get("checkpoint")
    if params["task"]["operation"] == "destroy":
        return destroy(params)
    if checkpoint is None:
        # Whether it has begun is not known. Writing the file again is the same as writing it.
        return apply(params)
    if time.time() < checkpoint["until"]:
        return {"state": "running", "checkpoint": checkpoint, "after_seconds": 1, "message": "under way"}
    return write(params["task"])


def destroy(params):
    try:
        os.remove(path(params["task"]))
        return {"state": "done", "changes": {"deleted": 1}, "text": "removed"}
    except FileNotFoundError:
        return {"state": "done", "text": "it was gone"}


def detect_drift(params):
    task = params["task"]
    there = found(task)
    if there is None:
        return {"drift": "found", "what": f"{path(task)} is gone"}
    if there != task["parameters"].get("content", ""):
        return {"drift": "found", "what": f"{path(task)} has other content"}
    return {"drift": "none"}


METHODS = {
    "Describe": describe,
    "Configure": configure,
    "Validate": validate,
    "Plan": plan,
    "Apply": apply,
    "Destroy": destroy,
    "DetectDrift": detect_drift,
    "Outputs": lambda params: outputs(params["task"]),
    "Cancel": lambda params: {},
    "Resume": resume,
}


def main():
    # The end of the input is the end of the plugin.
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"id": request["id"]}
        try:
            method = METHODS.get(request["method"])
            if method is None:
                raise Refused("unsupported", request["method"])
            answer["result"] = method(request["params"])
        except Refused as refused:
            answer["error"] = {"kind": refused.kind, "message": str(refused)}
        except OSError as error:
            answer["error"] = {"kind": "transient", "message": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
