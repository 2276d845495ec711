"""Judges the JobSet or the LeaderWorkerSet in a rendered manifest: check_sets.py ALL.yaml OTHERS.yaml

The fields of these two that we use have a schema here, which admits no others; the Job or the pod
in it is written to OTHERS.yaml with all other documents, for kubernetes-validate.
"""

import sys

import jsonschema
import yaml

JOB_SET = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "jobset.x-k8s.io/v1alpha2"},
        "kind": {"const": "JobSet"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["replicatedJobs"],
            "properties": {
                "network": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "enableDNSHostnames": {"type": "boolean"},
                        "subdomain": {"type": "string"},
                        "publishNotReadyAddresses": {"type": "boolean"},
                    },
                },
                "failurePolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "maxRestarts": {"type": "integer", "minimum": 0},
                        "restartStrategy": {"enum": ["Recreate", "BlockingRecreate"]},
                    },
                },
                "replicatedJobs": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["name", "replicas", "template"],
                        "properties": {
                            "name": {"type": "string", "maxLength": 40},
                            "replicas": {"type": "integer", "minimum": 1},
                            "template": {
                                "type": "object",
                                "additionalProperties": False,
                                "required": ["spec"],
                                "properties": {
                                    "metadata": {"type": "object"},
                                    "spec": {"type": "object"},
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}

LEADER_WORKER_SET = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "leaderworkerset.x-k8s.io/v1"},
        "kind": {"const": "LeaderWorkerSet"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["leaderWorkerTemplate"],
            "properties": {
                "replicas": {"type": "integer", "minimum": 0},
                "startupPolicy": {"enum": ["LeaderCreated", "LeaderReady"]},
                "leaderWorkerTemplate": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["workerTemplate"],
                    "properties": {
                        "size": {"type": "integer", "minimum": 1},
                        "restartPolicy": {"enum": ["RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"]},
                        "workerTemplate": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["spec"],
                            "properties": {"metadata": {"type": "object"}, "spec": {"type": "object"}},
                        },
                    },
                },
            },
        },
    },
}


def jobs_of(job_set):
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]},
             "spec": job["template"]["spec"]} for job in job_set["spec"]["replicatedJobs"]]


def pods_of(worker_set):
    template = worker_set["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker"}, "spec": template["spec"]}]


KINDS = {"JobSet": (JOB_SET, jobs_of), "LeaderWorkerSet": (LEADER_WORKER_SET, pods_of)}

with open(sys.argv[1], encoding="utf-8") as file:
    documents = [document for document in yaml.safe_load_all(file) if document]
others = []
sets = 0
for document in documents:
    if document["kind"] not in KINDS:
        others.append(document)
        continue
    schema, parts_of = KINDS[document["kind"]]
    jsonschema.validate(document, schema)
    others += parts_of(document)
    sets += 1
if not sets:
    sys.exit("there is no JobSet and no LeaderWorkerSet")
with open(sys.argv[2], "w", encoding="utf-8") as file:
    yaml.safe_dump_all(others, file)
