"""`stoker local predict`: a model in a folder or bucket predicts here, without a server."""

from stoker.cli.instances import add_instance_flags, given, print_predictions
from stoker.compat.aiplatform.gcloud import add_global_flags
from stoker.terminal.parser import Arguments, Parser

_FRAMEWORKS = "tensorflow, scikit-learn, xgboost, torch, keras, transformers, onnx, tabular, text, custom"


def build(parser: Parser) -> None:
    command = parser.add_command(
        "predict",
        predict,
        help="predict here with a model in a folder or bucket",
        example="stoker local predict --model-dir out --json-instances instances.json --trust",
    )
    command.add_argument(
        "--model-dir", required=True, metavar="DIR", help="a bundle, or a folder (or URL) with one model file"
    )
    add_instance_flags(command)
    model = command.add_argument_group("which model")
    model.add_argument("--framework", metavar="NAME", help=f"told by the files if not given: {_FRAMEWORKS}")
    model.add_argument("--signature-name", metavar="NAME", help="TensorFlow's, or an estimator's method: predict_proba")
    model.add_argument("--prediction-class", metavar="MODULE.CLASS", help="AI Platform's custom prediction routine")
    model.add_argument("--runtime-version", metavar="V", help="AI Platform's that it was made on, like 1.15")
    model.add_argument("--python-version", metavar="X.Y", help="the Python that it was made on, like 3.7")
    model.add_argument("--trust", action="store_true", help="load pickles and code: they run with your rights")
    command.add_argument("--json", action="store_true", help='print {"predictions": […]}')
    add_global_flags(command)


def predict(arguments: Arguments) -> None:
    from stoker.predict.loading import MadeOn, load

    what = given(arguments)
    predictor = load(
        arguments.model_dir,
        trust_pickle=arguments.trust,
        framework=arguments.framework,
        prediction_class=arguments.prediction_class,
        signature_name=arguments.signature_name or what.signature_name,
        made_on=MadeOn(arguments.runtime_version, arguments.python_version),
    )
    predictions = predictor.predict(what.instances(predictor.card.signature))
    print_predictions(predictions, as_json=arguments.json)
