"""The OpenAPI document of one model's server: its addresses, and what its instances hold."""

from typing import Any

from stoker.schema.bundle import FieldSpec, ModelCard, Signature

_TYPES = {"float": "number", "integer": "integer", "boolean": "boolean", "string": "string"}


def document(name: str, version: str | None, card: ModelCard) -> dict[str, Any]:
    model = f"/models/{name}"
    predict = _post("Predict (AI Platform's request)", "Instances", "Predictions", is_predict=True)
    infer = _post("Infer (Open Inference Protocol v2)", "InferRequest", "InferReply")
    paths = {
        "/predict": predict,
        f"/v1{model}:predict": predict,
        f"/v1/projects/{{project}}{model}:predict": {**predict, "parameters": [_parameter("project")]},
        f"/v2{model}/infer": infer,
        f"/v2{model}": _get("The model's inputs and outputs"),
        f"/v2{model}/ready": _get("Whether the model is ready"),
        "/v2/health/live": _get("Whether the server lives"),
        "/v2/health/ready": _get("Whether the server is ready"),
        "/health": _get("Whether all is well"),
        "/metrics": _get("Counters, for Prometheus", kind="text/plain"),
    }
    if version is not None:
        paths[f"/v1{model}/versions/{version}:predict"] = predict
        paths[f"/v2{model}/versions/{version}/infer"] = infer
    return {
        "openapi": "3.1.0",
        "info": {"title": name, "version": version or "0"},
        "paths": paths,
        "components": {
            "schemas": _schemas(card.signature),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(signature: Signature) -> dict[str, Any]:
    tensor = {
        "type": "object",
        "required": ["name", "shape", "datatype", "data"],
        "properties": {
            "name": {"type": "string"},
            "shape": {"type": "array", "items": {"type": "integer"}},
            "datatype": {"type": "string"},
            "data": {"type": "array"},
        },
    }
    tensors = {"type": "array", "items": {"$ref": "#/components/schemas/Tensor"}}
    return {
        "Instance": _instance(signature),
        "Instances": {
            "type": "object",
            "required": ["instances"],
            "properties": {
                "instances": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Instance"}},
                "signature_name": {"type": "string"},
            },
        },
        "Predictions": {"type": "object", "properties": {"predictions": {"type": "array"}}},
        "Tensor": tensor,
        "InferRequest": {"type": "object", "required": ["inputs"], "properties": {"inputs": tensors}},
        "InferReply": {"type": "object", "properties": {"model_name": {"type": "string"}, "outputs": tensors}},
        "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
    }


def _instance(signature: Signature) -> dict[str, Any]:
    inputs = signature.inputs
    if not inputs:
        return {}
    if len(inputs) == 1 and not inputs[0].name:
        return _field(inputs[0])
    return {
        "type": "object",
        "required": [spec.name for spec in inputs if not spec.nullable],
        "properties": {spec.name: _field(spec) for spec in inputs},
    }


def _field(spec: FieldSpec) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if spec.dtype in _TYPES:
        kind = _TYPES[spec.dtype]
        schema["type"] = [kind, "null"] if spec.nullable else kind
    if spec.categories is not None:
        schema["enum"] = [*spec.categories, *([None] if spec.nullable else [])]
    for size in reversed(spec.shape or ()):
        schema = {"type": "array", "items": schema}
        if size is not None:
            schema |= {"minItems": size, "maxItems": size}
    return schema


def _post(summary: str, request: str, reply: str, *, is_predict: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{request}"}}}
    if is_predict:
        content |= {"text/csv": {"schema": {"type": "string"}}, "application/x-tfrecord": {}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    answers = {
        "400": "What is wrong with which instance",
        "413": "The body is too large",
        "429": "Too many requests wait; try again",
        "504": "No prediction in time",
    }
    responses: dict[str, Any] = {code: {"description": text, "content": error} for code, text in answers.items()}
    schema = {"schema": {"$ref": f"#/components/schemas/{reply}"}}
    responses["200"] = {"description": "One for each instance, in order", "content": {"application/json": schema}}
    body = {"required": True, "content": content}
    return {"post": {"summary": summary, "requestBody": body, "responses": dict(sorted(responses.items()))}}


def _get(summary: str, *, kind: str = "application/json") -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": {"200": {"description": summary, "content": {kind: {}}}}}}


def _parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
