"""Judges the JobSet in a rendered manifest: check_jobset.py ALL.yaml OTHERS.yaml

The fields of jobset.x-k8s.io/v1alpha2 that we use have a schema here, which admits no others; the
Job in it is written to OTHERS.yaml with all other documents, for kubernetes-validate.
"""

import sys

import jsonschema
import yaml

SCHEMA = {
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

with open(sys.argv[1], encoding="utf-8") as file:
    documents = [document for document in yaml.safe_load_all(file) if document]
sets = [document for document in documents if document["kind"] == "JobSet"]
if not sets:
    sys.exit("there is no JobSet")
others = [document for document in documents if document["kind"] != "JobSet"]
for jobset in sets:
    jsonschema.validate(jobset, SCHEMA)
    for job in jobset["spec"]["replicatedJobs"]:
        others.append({"apiVersion": "batch/v1", "kind": "Job",
                       "metadata": {"name": job["name"]}, "spec": job["template"]["spec"]})
with open(sys.argv[2], "w", encoding="utf-8") as file:
    yaml.safe_dump_all(others, file)
