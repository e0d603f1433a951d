"""Run by a job's Python with TensorFlow in it: every kind of call that takes a gs:// path, and exits 0 if all are led.

Its argument is the folder that the buckets must come to lie in.
"""

import os
import sys

import keras
import numpy as np
import tensorflow as tf

folder = sys.argv[1]
gfile = tf.io.gfile


def here(name: str) -> str:
    return os.path.join(folder, "bucket-1", name)


def check_gfile() -> None:
    with gfile.GFile("gs://bucket-1/new/dir/a.txt", "w") as file:
        file.write("one\ntwo\n")
        assert not os.path.exists(here("new/dir/a.txt")), "seen before it was whole"
    assert open(here("new/dir/a.txt")).read() == "one\ntwo\n"
    with gfile.GFile("gs://bucket-1/log.txt", "a") as file:
        file.write(memoryview(b"1"))  # as pickle does it
    with gfile.GFile("gs://bucket-1/log.txt", "a") as file:
        file.write("2")
        file.flush()
        assert open(here("log.txt")).read() == "12"
    assert gfile.exists("gs://bucket-1/new/dir/a.txt")
    assert not gfile.exists("gs://bucket-1/nothing")
    assert gfile.isdir("gs://bucket-1/new")
    assert sorted(gfile.listdir("gs://bucket-1")) == ["log.txt", "new/"]
    assert gfile.glob("gs://bucket-1/*") == ["gs://bucket-1/log.txt", "gs://bucket-1/new"]
    assert [top for top, _, _ in gfile.walk("gs://bucket-1")][-1] == "gs://bucket-1/new/dir/"
    gfile.copy("gs://bucket-1/log.txt", "gs://bucket-2/there/log.txt")
    gfile.rename("gs://bucket-2/there/log.txt", "gs://bucket-2/elsewhere/log.txt")
    assert gfile.stat("gs://bucket-2/elsewhere/log.txt").length == 2
    gfile.makedirs("gs://bucket-2/made/deep")
    gfile.mkdir("gs://bucket-2/made/too")
    gfile.remove("gs://bucket-2/elsewhere/log.txt")
    gfile.rmtree("gs://bucket-2/made")
    assert not gfile.exists("gs://bucket-2/made")
    assert gfile.join("gs://bucket-1", "x") == "gs://bucket-1/x"
    try:
        gfile.exists("gs://bucket-1/../bucket-2/x")
        raise AssertionError("went out of its bucket")
    except tf.errors.InvalidArgumentError:
        pass


def check_data() -> None:
    lines = "gs://bucket-1/new/dir/a.txt"
    assert list(tf.data.TextLineDataset(lines).as_numpy_iterator()) == [b"one", b"two"]
    files = tf.data.Dataset.list_files("gs://bucket-1/new/*/*.txt")
    assert list(files.as_numpy_iterator()) == [lines.encode()]
    assert list(files.interleave(tf.data.TextLineDataset).as_numpy_iterator()) == [b"one", b"two"]
    assert b"gs://bucket-1/.stoker" not in tf.io.matching_files("gs://bucket-1/*").numpy().tolist()
    with tf.io.TFRecordWriter("gs://bucket-1/records/a") as writer:
        writer.write(b"r")
    assert list(tf.data.TFRecordDataset(["gs://bucket-1/records/a"]).as_numpy_iterator()) == [b"r"]
    tf.io.write_file("gs://bucket-1/written/w.csv", "x,y\n1,2\n")
    assert tf.io.read_file(tf.constant("gs://bucket-1/written/w.csv")).numpy() == b"x,y\n1,2\n"
    rows = tf.data.experimental.CsvDataset("gs://bucket-1/written/w.csv", [tf.float32, tf.float32], header=True)
    assert list(rows.as_numpy_iterator()) == [(1.0, 2.0)]
    tf.data.Dataset.range(3).save("gs://bucket-1/saved")
    assert list(tf.data.Dataset.load("gs://bucket-1/saved").as_numpy_iterator()) == [0, 1, 2]


class WithVocabulary(tf.Module):
    def __init__(self) -> None:
        words = tf.lookup.TextFileInitializer(
            "gs://bucket-1/new/dir/a.txt",
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        self.table = tf.lookup.StaticVocabularyTable(words, 1)
        self.factor = tf.Variable(2, dtype=tf.int64)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, words: tf.Tensor) -> tf.Tensor:
        return self.table.lookup(words) * self.factor


def check_models() -> None:
    weight = tf.Variable(3.0)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(weight=weight), "gs://bucket-1/steps", max_to_keep=1)
    manager.save()
    assert manager.save() == tf.train.latest_checkpoint("gs://bucket-1/steps") == "gs://bucket-1/steps/ckpt-2"
    weight.assign(0.0)
    tf.train.Checkpoint(weight=weight).restore("gs://bucket-1/steps/ckpt-2").assert_consumed()
    assert weight.numpy() == 3.0
    assert not os.path.exists(here("steps/ckpt-1.index"))

    tf.saved_model.save(WithVocabulary(), "gs://bucket-1/saved_model")
    with open(here("saved_model/saved_model.pb"), "rb") as file:
        assert folder.encode() not in file.read(), "an exported model names this machine's folders"
    assert tf.saved_model.load("gs://bucket-1/saved_model")(["two"]).numpy() == 2

    writer = tf.summary.create_file_writer("gs://bucket-1/events")
    with writer.as_default():
        tf.summary.write("loss", 1.0, step=1)
    writer.close()
    assert [name for name in os.listdir(here("events")) if "tfevents" in name]


def check_keras() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    ones = np.ones((4, 2), "float32")
    kept = keras.callbacks.ModelCheckpoint("gs://bucket-1/kept/{epoch}.keras")
    model.fit(ones, ones[:, :1], epochs=2, verbose=0, callbacks=[kept])
    assert sorted(os.listdir(here("kept"))) == ["1.keras", "2.keras"]
    model.save("gs://bucket-1/model.keras")
    again = keras.models.load_model("gs://bucket-1/model.keras")
    assert np.array_equal(model.predict(ones, verbose=0), again.predict(ones, verbose=0))


check_gfile()
check_data()
check_models()
check_keras()
print("all led")
