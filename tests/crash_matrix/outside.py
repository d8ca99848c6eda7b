"""A plugin whose every effect is a request, counted by the test."""

import json
import sys
import urllib.error
import urllib.request

url = ""


def effect(task):
    wish = f"apply {task['parameters']['size']}" if task["operation"] == "apply" else "destroy"
    body = json.dumps({"attempt": task["attempt"], "wish": wish}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{url}/effects", body)).read()
    return {"state": "running", "checkpoint": {"attempt": task["attempt"]}, "after_seconds": 0}


def has_begun(task):
    try:
        urllib.request.urlopen(f"{url}/effects/{task['attempt']}").read()
        return True
    except urllib.error.HTTPError:
        return False


def answer(method, params):
    global url
    if method == "Describe":
        return {"contract": "1.0", "name": "outside", "version": "1"}
    if method == "Configure":
        url = params["settings"]["url"]
        return {}
    if method == "Validate":
        return {}
    if method in ("Apply", "Destroy"):
        return effect(params["task"])
    if method == "Resume":
        if has_begun(params["task"]):
            return {"state": "done"}
        return effect(params["task"])
    return None


for line in sys.stdin:
    request = json.loads(line)
    try:
        result = answer(request["method"], request["params"])
        said = {"result": result} if result is not None else {"error": {"kind": "unsupported"}}
    except OSError as error:
        said = {"error": {"kind": "unknown", "message": str(error)}}
    print(json.dumps({"id": request["id"], **said}), flush=True)
