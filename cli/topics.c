/* The topics of `tersegrad help`; see help.h. */
#include "help.h"

const cli_topic cli_topics[] = {
    {"recipes", "how a recipe is written",
     "A recipe says how a gradient is compressed. It is parts joined by '+', at most one of each stage:\n"
     "\n"
     "  feedback   what the encoder keeps and adds to the next gradient     ef, momentum\n"
     "  select     which entries are sent                                   topk, randomk, adabins, ...\n"
     "  quantize   how a value is written                                   fp16, sign, qsgd, lowrank, ...\n"
     "  pack       how indices and symbols become bytes                     gaps, bitmap, rans, huffman, ...\n"
     "\n"
     "A part is NAME, NAME@VALUE, NAME@KEY=VALUE,KEY=VALUE or NAME@VALUE,KEY=VALUE. A stage that is left out does\n"
     "nothing. ef+topk@0.01+fp16 keeps a residual, sends the largest hundredth of the entries, each as fp16.\n"
     "A preset is a name for a whole recipe, such as dense, adacomp, dgc@0.01, powersgd@4 or co3.\n"
     "'tersegrad recipes' lists all parts and presets with their parameters; 'tersegrad recipes RECIPE' checks one.\n"},
    {"data", "data sets that train, compare and similarity learn from",
     "--data takes one of:\n"
     "\n"
     "  fashion      Fashion-MNIST as the Debian package dataset-fashion-mnist installs it; 10 classes, 28x28\n"
     "  fashion:DIR  the same files, gzipped or not, in a folder\n"
     "  mnist:DIR    MNIST, the four IDX files in a folder\n"
     "  cifar10:DIR  CIFAR-10, the binary version (data_batch_1.bin ...) in a folder\n"
     "  text:FILE    any text, for charlstm, which learns to guess the next character\n"
     "  glyphs       digits that the program draws itself; needs no file\n"
     "\n"
     "A name that is not in this list is misuse (exit status 2); files that are missing or damaged are a failed run\n"
     "(1).\n"},
    {"models", "models that can be trained",
     "--model takes one of:\n"
     "\n"
     "  mlp       two hidden dense layers, for images\n"
     "  lenet     two convolutions and two dense layers, for images of at least 16x16\n"
     "  resnet8   residual networks of 8 and 20 layers with batch norm, for images\n"
     "  resnet20\n"
     "  charlstm  an embedding, an LSTM and a dense layer over characters, for --data text:FILE\n"
     "\n"
     "They are trained by CPUs, in fp32, with SGD or Adam.\n"},
    {"link", "threads, MPI, and emulated slow links",
     "--link threads     workers are threads of this process, which copy from each other's memory\n"
     "--link mpi         workers are processes that mpirun has started, on one machine or many\n"
     "--link RATE[,LATENCY]\n"
     "                   workers are threads, and every message is held back: an emulation of a slower link\n"
     "\n"
     "RATE is a number with kbit, mbit or gbit (a second), LATENCY one with us, ms or s: --link 100mbit,1ms.\n"
     "Every worker has a port of that rate in each direction. An operation takes LATENCY plus\n"
     "8 * max(bytes it sends, bytes it receives) / RATE, counted from the bytes that are really handed to the link,\n"
     "headers included, and from when all workers concerned have started it. Operations that are under way at the\n"
     "same time share the rate; their latencies overlap. Protocol overhead of Ethernet and TCP is not added, nor is\n"
     "congestion. bench/netns measures over shaped network interfaces instead, where the machine permits.\n"
     "\n"
     "With all three, the gradients of last layers are encoded and travel while the backward pass goes on with the\n"
     "layers before them (--group-size). With --group-size 0 everything travels after the backward pass. MPI must\n"
     "provide MPI_THREAD_MULTIPLE for that, or messages make progress only between layers.\n"},
    {"local-steps", "several steps of each worker between exchanges",
     "With --local-steps H, a worker takes H steps of its own optimizer on its own weights. Then all exchange how far\n"
     "their weights have moved, by the recipe, and go on from the average. Bytes fall by H and by the recipe's ratio.\n"
     "\n"
     "  --local-steps 4              rounds of 4 steps\n"
     "  --local-steps 1,200:4,2000:8 one step a round at first, 4 in rounds that begin at step 200 or later, then 8\n"
     "  --outer nesterov@lr=0.7,momentum=0.9\n"
     "                               a step with momentum along the averaged moves, in place of their average\n"
     "  --recipes 'dense;adacomp:4'  of compare: a row of its own with 4 local steps\n"
     "  --quorum 3 --grace 0.5       a round ends half a second after 3 workers are there; others bring their moves to\n"
     "                               a later round. --late 2:300ms rehearses it with a slow worker\n"
     "\n"
     "1 alone exchanges gradients in every step. Weights are the same to the bit at the end of every round, where "
     "they\n"
     "are compared and tested; a test that is due inside a round waits for its end. Running statistics of norms are\n"
     "averaged for tests. Schedules of the learning rate count all steps, and so do ratios: they compare with an fp32\n"
     "all-reduce in every step. A checkpoint may be inside a round; another number of workers goes on only from a\n"
     "round's end. docs/local-steps.md says how to choose H.\n"},
    {"config", "flags from a file",
     "train and compare take --config FILE. The file holds flags, one a line, with or without the dashes:\n"
     "\n"
     "  # eight workers on a slow link\n"
     "  recipe   ef-topk@0.01\n"
     "  workers  8\n"
     "  link     100mbit,1ms\n"
     "  nesterov\n"
     "\n"
     "'#' at the start of a line or after a space begins a comment. A value may stand after '=' and in quotes. Flags\n"
     "on the command line win: --recipe and --recipes also over each other, and --steps and --epochs. Errors name\n"
     "the file and the line; they are misuse, and a file that cannot be read is a failed run.\n"},
    {"output", "JSON, CSV, progress and colours",
     "Results go to standard output; progress, notes and errors go to standard error.\n"
     "\n"
     "--json prints one JSON object on one line. --csv prints the rows of the table, with the keys of the JSON object\n"
     "as the first line (RFC 4180; numbers are written in full). What a row holds as lists is left out of CSV.\n"
     "\n"
     "On a terminal long work shows a bar with the time left; elsewhere a plain line every ten seconds. Colours are\n"
     "used on terminals alone, and not at all where the environment sets NO_COLOR or TERM=dumb.\n"},
    {"diverged", "when a run counts as diverged",
     "A training run has diverged if\n"
     "\n"
     "  - its loss, or a gradient, is no longer finite (the run ends there, as a failed run); or\n"
     "  - its training loss rose to more than 1.5 times its start, and at the end it is no better than guessing: not\n"
     "    below 0.8 * ln(classes). The start is the mean of the first 3 steps, or ln(classes) if that is larger; "
     "while\n"
     "    it rises and at the end, the mean of 10 steps counts.\n"
     "\n"
     "So a run that rose and recovered, or that only learns slowly, has not diverged; runs of fewer than 20 steps are\n"
     "judged by the first rule alone. A run that was resumed is judged from where it went on.\n"
     "Tables, pages and JSON (\"diverged\": the step, or null) mark such runs; their accuracy means nothing.\n"
     "\n"
     "What helps: a lower --rate or a --warmup; a recipe that sends more (a larger ratio); without momentum in the\n"
     "optimizer (--momentum 0) where a sparse recipe keeps a residual; dgc, which corrects momentum for residuals.\n"},
    {"exit-codes", "what the exit status means",
     "0  success\n"
     "1  a failed run: a file that is missing, damaged or cannot be written, too little memory, a lost worker,\n"
     "   training that ended because its loss was no longer a number\n"
     "2  misuse: the command line, or the file of --config, asks for what cannot be: an unknown command, flag, "
     "recipe,\n"
     "   model, data set or exchange; a value out of its range; flags, or a model and data, that do not go together\n"
     "\n"
     "A missing file is a failed run; an unknown name is misuse. Either comes with one line on standard error. A\n"
     "comparison in which a recipe fails still shows the others, and ends with status 1.\n"},
    {NULL, NULL, NULL},
};
