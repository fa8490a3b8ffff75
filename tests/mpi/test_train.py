"""`tersegrad train` as processes: the same bits as threads, ranks that disagree.

    MPI=openmpi BUILD=build/openmpi python3 -m unittest discover -s tests/mpi
"""

from job import PROGRAM, QUICK, SMALL, Case, mpirun, mpirun_unlike, said


class Train(Case):
    def test_processes_end_in_the_bits_of_threads(self):
        # With several groups the bytes of announcements depend on which are ready at the same time.
        one_group = ("--group-size", 0)
        for n, recipe, groups in ((1, "adacomp", ()), (2, "dense", ()), (3, "ef+topk@0.01+fp16", ()), (4, "powersgd", ()),
                                  (6, "random-block@0.1", ()), (8, "ef+topk@0.05,coords=shared", one_group)):
            with self.subTest(ranks=n, recipe=recipe):
                flags = (*SMALL, "--recipe", recipe, "--steps", 12, "--test-every", 5, *groups)
                self.compare(n, *flags)

    def test_hosts_end_in_the_bits_of_threads(self):
        for n, size, recipe in ((4, 2, "dense"), (4, 2, "ef+topk@0.01+fp16"), (6, 3, "powersgd")):
            with self.subTest(ranks=n, size=size, recipe=recipe):
                flags = (*SMALL, "--recipe", recipe, "--steps", 8, "--hosts", size)
                ours = self.compare(n, *flags)
                self.assertEqual(ours["host_size"], size)
                self.assertLess(ours["between_bytes_per_step"], ours["wire_bytes_per_step"])

    def test_workers_of_one_machine_are_flat(self):
        self.assertEqual(self.processes(2, *SMALL, "--recipe", "dense", "--steps", 2)["host_size"], 1)

    def test_groups_change_no_bits(self):
        for recipe, more in (("adacomp", ("--exchange", "shard")), ("ef+topk@0.05", ("--exchange", "gather")), ("dense", ())):
            with self.subTest(recipe=recipe):
                flags = (*SMALL, "--recipe", recipe, "--steps", 10, *more)
                alone = self.threads(3, *flags, "--group-size", 0)
                for size, groups in ((0, 1), (1, 6), (100000, None)):
                    log = self.path / "run.jsonl"
                    found = self.processes(3, *flags, "--group-size", size, "--log", log)
                    for key in ("weights_hash", "train_loss", "test_loss", "test_accuracy", "kinds"):
                        self.assertEqual(found[key], alone[key], (key, size))
                    self.assertTrue(found["groups"] == groups if groups else 1 < found["groups"] < 6, found["groups"])
                    log.unlink()

    def test_other_groups_are_detected_at_the_start(self):
        command = [PROGRAM, *QUICK, *SMALL, "--recipe", "adacomp", "--steps", 5, "--timeout", 20]
        done = mpirun_unlike([*command, "--group-size", 0], [*command, "--group-size", 1000])
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(said(done)), 1, done.stderr)
        self.assertRegex(said(done)[0], "rank 1 has (group-size '1000', but rank 0 has '0'|options)")

    def test_lgc_in_all_its_phases(self):
        small = "dense=3,learn=5,enough=1e9,e1=4,e2=8,e3=8,e4=4,z=2,d1=4,d2=8,d3=8,d4=4"
        for form in ("ring", "server"):
            flags = (*SMALL, "--recipe", f"ef+topk@0.01,coords=shared+autoencoder@{form},{small}", "--steps", 12)
            self.assertEqual(self.processes(3, *flags)["weights_hash"], self.threads(3, *flags)["weights_hash"])

    def test_ranks_that_disagree_are_detected_at_the_start(self):
        base = [PROGRAM, *QUICK, "--batch", 8, "--steps", 5]
        mlp = ["--model", "mlp"]
        for ours, theirs, sentence in (
                (["--recipe", "adacomp", *mlp], ["--recipe", "dense", *mlp], "rank 1 has recipe 'dense', but rank 0 has 'adacomp'"),
                (["--recipe", "dense", *mlp], ["--recipe", "dense", *mlp, "--seed", 4], "rank 1 has seed '4', but rank 0 has '1'"),
                (["--recipe", "dense", *mlp], ["--recipe", "dense", *mlp, "--rate", 0.5], "rank 1 has rate '0.5', but rank 0 has '0.01"),
                (["--recipe", "dense", *mlp], ["--recipe", "dense", "--model", "resnet8"], "rank 1 has model 'resnet8', but rank 0 has 'mlp'")):
            done = mpirun_unlike(base + ours, base + theirs)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(len(said(done)), 1, done.stderr)
            self.assertIn(sentence, said(done)[0])

    def data_sets(self, name, last):
        """Small data sets in a folder of their own; `last` is the last byte of their test data."""
        folder = self.path / name
        folder.mkdir()
        def put(file, *parts):
            (folder / file).write_bytes(b"".join(parts))
        letters, n = bytes(range(97, 117)) * 200, 40
        for split in ("train", "t10k"):
            end = last if split == "t10k" else 0
            put(f"{split}-images-idx3-ubyte", bytes([0, 0, 8, 3, 0, 0, 0, n, 0, 0, 0, 28, 0, 0, 0, 28]), bytes(n * 784 - 1), bytes([end]))
            put(f"{split}-labels-idx1-ubyte", bytes([0, 0, 8, 1, 0, 0, 0, n]), bytes(n))
        put("data_batch_1.bin", bytes(n * 3073))
        put("test_batch.bin", bytes(n * 3073 - 1), bytes([last]))
        put("some.txt", letters, bytes([97 + last]))
        return {"mnist": f"mnist:{folder}", "fashion": f"fashion:{folder}", "cifar10": f"cifar10:{folder}", "text": f"text:{folder}/some.txt"}

    def test_ranks_with_other_data_are_detected_at_the_start(self):
        ours, theirs, copy = self.data_sets("ours", 1), self.data_sets("theirs", 2), self.data_sets("copy", 1)
        for kind, data in ours.items():
            with self.subTest(data=kind):
                line = [PROGRAM, "train", "--recipe", "dense", "--model", "charlstm" if kind == "text" else "mlp", "--batch", 4, "--steps", 2,
                        "--data"]
                done = mpirun_unlike(line + [data], line + [theirs[kind]])
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(len(said(done)), 1, done.stderr)
                self.assertRegex(said(done)[0], r"^tersegrad: rank 0: rank 1 has test-data hash '[0-9a-f]{16}', but rank 0 has '[0-9a-f]{16}'$")
        done = mpirun_unlike(line + [ours["text"]], line + [copy["text"]])  # another path, the same data
        self.assertEqual((done.returncode, said(done)), (0, []), done.stderr)
        text = self.path / "theirs/some.txt"
        text.write_bytes(b"?" + text.read_bytes()[1:])
        done = mpirun_unlike(line + [ours["text"]], line + [theirs["text"]])
        self.assertIn("rank 1 has training-data hash", said(done)[0])

    def test_what_goes_wrong_on_one_rank_ends_all(self):
        good = [PROGRAM, *QUICK, *SMALL, "--steps", 50, "--recipe", "adacomp"]
        bad = [PROGRAM, "train", "--data", "mnist:/nowhere", "--steps", 50, "--recipe", "adacomp"]
        done = mpirun_unlike(good, bad)
        self.assertNotEqual(done.returncode, 0)
        self.assertTrue(any("rank 1: there is no train-images" in line for line in said(done)), done.stderr)
        done = mpirun(2, *good, "--log", "/dev/full", "--checkpoint", self.path / "run.ck", "--resume")  # a disk that is full
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("tersegrad: rank 0: cannot write /dev/full: No space left on device", said(done))
        done = mpirun(3, *good, "--rate", 1000)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(said(done)), 1, done.stderr)
        self.assertRegex(said(done)[0], r"^tersegrad: rank 0: .*NaN or Inf.* at step \d+: training has diverged; try a lower --rate, or --warmup$")
        done = mpirun(2, *good, "--workers", 3)
        self.assertEqual(said(done), ["tersegrad: rank 0: --workers is 3, but 2 processes were started; leave it out"])
