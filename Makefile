# What a person types. The work is done by the scripts and by the presets of CMakePresets.json.
PREFIX = /usr/local
SECONDS = 60
TARGET =
MPI = openmpi
DEMO_STEPS = 150
DEMO_LINK = 100mbit,1ms
DEMO_RECIPES = dense;bf16;adacomp;terse@100:1,50:4;dgc@0.01;terngrad;powersgd@4;co3
ROUNDS = 5
SAVE =

.DEFAULT_GOAL := help
.PHONY: help demo demo-all mpi wheel deb check check-quick check-page bench gpu-check gpu-bench results docs fuzz format install clean program build-deps

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

demo: program ## train over an emulated link of 100 Mbit/s, dense and compressed: time to accuracy, and a page (3 minutes)
	@scripts/install-deps demo
	build/release/tersegrad compare --recipes '$(DEMO_RECIPES)' --link $(DEMO_LINK) --steps $(DEMO_STEPS) --test-every 15 \
		--page build/demo.html
	@echo
	@echo "Open build/demo.html in a browser. Try next:"
	@echo "  make demo-all                                                           every preset, a longer table"
	@echo "  make demo DEMO_LINK=1gbit,0.1ms                                         a faster link"
	@echo "  build/release/tersegrad train --recipe ef+topk@0.001+fp16 --epochs 2    one recipe, for longer"
	@echo "  build/release/tersegrad compare --model mlp --data glyphs --workers 8   other models, data, workers"
	@echo "  build/release/tersegrad recipes                                         what recipes are made of"

demo-all: program ## every preset on a link as fast as memory, with predictions for slower ones, and a page
	@scripts/install-deps demo
	build/release/tersegrad compare --steps $(DEMO_STEPS) --rate 0.005 --page build/demo-all.html

mpi: ## build the program for many machines, build/openmpi/tersegrad; MPI=mpich: build/mpich/tersegrad; MPI=mpi: by mpicc
	@scripts/install-deps build $(MPI)
	cmake --preset $(MPI) -DTG_BUILD_TESTS=OFF
	cmake --build build/$(MPI) --target tersegrad
	@echo
	@echo "Try next: mpirun -n 4 build/$(MPI)/tersegrad train --recipe adacomp     (docs/clusters.md)"

wheel: ## build the Python package in build/wheels: a wheel for other machines, and a source distribution; CUDA=1: with GPUs
	@scripts/install-deps wheel
	@scripts/build-wheel $(if $(CUDA),cuda)

check: ## run all tests and checks, as continuous integration does
	@scripts/install-deps check
	@scripts/check

check-quick: ## the checks of every day, under 90 seconds: layout, release build, unit tests, golden frames
	@scripts/install-deps check-quick
	@scripts/check-quick

check-page: program ## open the report pages in headless Chromium, and keep screenshots
	@scripts/install-deps page
	@/usr/bin/python3 scripts/check-page

bench: program ## measure recipes beside targets and beside what bench/results holds; SAVE=1 adds to it, ROUNDS=5, SIMD=avx2
	@scripts/install-deps bench
	@/usr/bin/python3 bench/recipes.py --rounds $(ROUNDS) $(if $(SIMD),--simd $(SIMD)) $(if $(SAVE),--save)

gpu-check: ## on a machine with a GPU: all tests of its kernels, golden and refused frames, compute-sanitizer
	@scripts/install-deps build
	cmake --preset cuda -DTG_BUILD_TESTS=ON -DTG_MPI=$(if $(shell command -v mpicc),any)
	cmake --build build/cuda --target cuda_tests tersegrad_batch tersegrad
	@scripts/gpu-check

gpu-bench: ## on a machine with a GPU: recipes beside a copy in device memory; SAVE=1 adds to bench/results
	@scripts/install-deps build
	cmake --preset cuda -DTG_BUILD_TESTS=OFF
	cmake --build build/cuda --target tersegrad bench_gpu_step
	@python3 bench/gpu.py $(if $(SAVE),--save)

results: ## make tables and plots of docs/results.md from what experiments/kept holds; runs nothing
	@/usr/bin/python3 experiments/report.py
	@/usr/bin/python3 experiments/results.py --kept

docs: ## build the documentation as a site, build/docs/site/index.html
	@scripts/install-deps docs
	@/usr/bin/python3 scripts/build-docs

fuzz: ## look for crashes: SECONDS=60 for each target, or only for TARGET=frame
	@scripts/install-deps fuzz
	@scripts/fuzz "$(SECONDS)" $(TARGET)

format: ## lay out all C files
	@scripts/install-deps format
	scripts/list-files | grep '\.[ch]$$' | xargs clang-format -i

install: program ## install program, libraries and header to PREFIX=/usr/local
	cmake --build build/release --target tersegrad tersegrad_shared tersegrad_static tersegrad_said
	cmake --install build/release --prefix "$(abspath $(PREFIX))"

deb: ## make a Debian package of program, libraries and headers in build/deb, and try it
	@scripts/install-deps deb
	cmake --preset release -B build/deb -DTG_BUILD_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/usr -DTG_ZSH_DIR=share/zsh/vendor-completions
	cmake --build build/deb
	cd build/deb && cpack -G DEB
	scripts/check-deb build/deb/tersegrad_*.deb

clean: ## remove everything that was built
	rm -rf build

program: build-deps build/release/build.ninja
	cmake --build build/release --target tersegrad

build-deps:
	@scripts/install-deps build

# Without the tests, so that to use the program takes no test framework; `make check` turns them on.
build/release/build.ninja: | build-deps
	cmake --preset release -DTG_BUILD_TESTS=OFF
