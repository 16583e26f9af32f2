# SPDX-License-Identifier: Apache-2.0
"""Reads the samples of docs/launch and checks what they count; writes the shell commands of their pods to a folder.

Usage: launch_samples.py FOLDER. FOLDER/jobset.sh and FOLDER/pytorchjob.sh are what a container runs.
"""
import os
import sys

try:
    import yaml
except ImportError:
    print("SKIPPED: there is no PyYAML")
    sys.exit(77)

PORT_OF_OPERATOR = "pytorchjob-port"  # and the container's name: kubeflow/training-operator, pkg/apis/kubeflow.org/v1


def read(name):
    with open(os.path.join("docs", "launch", name)) as file:
        return yaml.safe_load(file)


def write(name, container):
    assert container["command"] == ["bash", "-c"] and len(container["args"]) == 1
    with open(os.path.join(sys.argv[1], name), "w") as file:
        file.write(container["args"][0])


def gpus(container):
    return int(container["resources"]["limits"]["nvidia.com/gpu"])


def has_memory(pod):
    mounts = {m["mountPath"]: m["name"] for m in pod["containers"][0]["volumeMounts"]}
    volumes = {v["name"]: v for v in pod["volumes"]}
    assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory"
    assert set(mounts.values()) <= set(volumes)


def jobset():
    file = read("jobset.yaml")
    assert (file["apiVersion"], file["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    name, (job,) = file["metadata"]["name"], file["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"] == int(env["PODS"])
    assert gpus(container) == int(env["GPUS"])
    # Pod 0 of job 0, by the subdomain that JobSet gives: <set>-<replicated job>-<job>-<pod>.<set>
    assert env["MASTER_ADDR"] == f"{name}-{job['name']}-0-0.{name}"
    has_memory(pod)
    write("jobset.sh", container)
    return int(env["PODS"]) * int(env["GPUS"])


def pytorchjob():
    file = read("pytorchjob.yaml")
    assert (file["apiVersion"], file["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    roles = file["spec"]["pytorchReplicaSpecs"]
    assert set(roles) == {"Master", "Worker"} and roles["Master"]["replicas"] == 1
    for role in roles.values():
        pod = role["template"]["spec"]
        (container,) = pod["containers"]
        assert container["name"] == "pytorch" and gpus(container) == 1
        assert PORT_OF_OPERATOR in [p["name"] for p in container["ports"]]
        has_memory(pod)
    write("pytorchjob.sh", container)
    return sum(role["replicas"] for role in roles.values())


assert jobset() == pytorchjob() == 16
