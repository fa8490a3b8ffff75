/* The flags; see flags.h. A flag has one name, one meaning, one range and one line of help wherever it appears. */
#include "flags.h"

#include "run.h"

#define AT(member) offsetof(cli_args, member)

static const char *const devices[] = {"cpu", "cuda", NULL};
static const char *const sides[] = {"host", "device", NULL};
static const char *const nonfinites[] = {"error", "zero", "pass", NULL};
static const char *const dtypes[] = {"fp32", "fp16", "bf16", NULL};
static const char *const kinds[] = {"other", "conv", "dense", "recurrent", "embedding", "norm", "bias", NULL};
static const char *const exchanges[] = {"allreduce", "gather",   "shard",      "server",
                                        "lowrank",   "lgc-ring", "lgc-server", NULL};
static const char *const links[] = {"threads", "mpi", NULL};
static const char *const optimizers[] = {"sgd", "adam", NULL};
static const char *const schedules[] = {"constant", "step", "cosine", NULL};

/* Counts are read exactly; their limits stand here as doubles, of which UINT64_MAX is the one that is rounded, up. */
static const double any = 18446744073709551615.0;

#define COUNT(member, least, most) .type = CLI_COUNT, .at = AT(member), .min = (least), .max = (most)
#define COUNT32(member, least, most) .type = CLI_COUNT32, .at = AT(member), .min = (least), .max = (most)
#define REAL(member, least, most, closed) \
    .type = CLI_REAL, .at = AT(member), .min = (least), .max = (most), .min_allowed = (closed)

const cli_flag_row cli_flags[CLI_FLAG_N_OF] = {
    [CLI_FLAG_RECIPE] = {"recipe", "R", CLI_LIST, AT(recipes), .help = "the recipe, such as ef+topk@0.01+fp16"},
    [CLI_FLAG_RECIPES] = {"recipes", "'A;B;C'", CLI_LISTS, AT(recipes), .help = "recipes with ';' between them"},
    [CLI_FLAG_RULE] = {"rule", "'PATTERN=RECIPE'", CLI_PAIRS, AT(rules), .repeats = 1,
                       .help =
                           "another recipe for tensors whose name matches ('*': any characters, '?': one character);\n"
                           "may be repeated; the first match is used"},
    [CLI_FLAG_KIND] = {"kind", "'PATTERN=KIND'", CLI_PAIRS, AT(kinds), .repeats = 1, .choices = kinds,
                       .help = "the kind of tensors whose name matches: conv, dense, recurrent, embedding, norm,\n"
                               "bias, other; norm and bias are sent uncompressed by default; may be repeated"},
    [CLI_FLAG_DENSE_BELOW] = {"dense-below", "N", COUNT(dense_below, 0, any),
                              .help = "tensors with fewer elements are sent uncompressed"},
    [CLI_FLAG_NONFINITE] = {"nonfinite", "POLICY", CLI_CHOICE, AT(nonfinite), .choices = nonfinites,
                            .help = "NaN and Inf: error (fail the step), zero (replace by 0), pass (send them)"},
    [CLI_FLAG_SEED] = {"seed", "N", COUNT(seed, 0, any), .help = "the seed that all workers share"},
    [CLI_FLAG_STEP] = {"step", "N", COUNT(step, 0, any), .help = "the training step"},
    [CLI_FLAG_RANK] = {"rank", "N", COUNT32(rank, 0, 4294967294.0), .help = "the worker whose gradient this is"},
    [CLI_FLAG_N] = {"n", "N", COUNT(n, 1, 1099511627776.0), .help = "elements of a synthetic gradient"},
    [CLI_FLAG_SHAPES] =
        {"shapes", "SHAPES", CLI_TEXT, AT(shapes),
         .help = "synthetic gradients of many tensors: COUNTxELEMENTS, such as 10000x100, or a file with a\n"
                 "line per tensor, such as 'conv1 64x3x7x7'"},
    [CLI_FLAG_INPUT] = {"input", "FILE.npy", CLI_TEXT, AT(input),
                        .help = "use this gradient instead of a synthetic one"},
    [CLI_FLAG_SHIFT] = {"shift", "N", COUNT(shift, 1, 1099511627776.0),
                        .help = "--input has the gradients of many steps: each has --n elements and begins N elements\n"
                                "after the previous one"},
    [CLI_FLAG_DTYPE] = {"dtype", "TYPE", CLI_CHOICE, AT(dtype), .choices = dtypes,
                        .help = "of a synthetic gradient, or of a file's, converted: fp32, fp16, bf16"},
    [CLI_FLAG_SECONDS] = {"seconds", "S", REAL(seconds, 0, 3600, 0), .help = "time to spend on each measurement"},
    [CLI_FLAG_THREADS] = {"threads", "T", COUNT32(threads, 1, 256), .help = "threads that share the work, 1 to 256"},
    [CLI_FLAG_DEVICE] = {"device", "DEVICE", CLI_CHOICE, AT(device), .choices = devices,
                         .help = "where to encode and decode: cpu, or cuda, the first GPU (docs/gpu.md)"},
    [CLI_FLAG_WORKERS] = {"workers", "W", COUNT32(workers, 1, CLI_WORKER_MAX), .help = "workers, 1 to 64"},
    [CLI_FLAG_STEPS] = {"steps", "N", COUNT(steps, 1, 1e9), .help = "training steps"},
    [CLI_FLAG_EPOCHS] = {"epochs", "E", REAL(epochs, 0, 1e6, 0), .help = "passes over the training data"},
    [CLI_FLAG_MODEL] = {"model", "NAME", CLI_NAME, AT(model), .choices = tr_model_names,
                        .help = "mlp, lenet, resnet8, resnet20 or charlstm"},
    [CLI_FLAG_DATA] = {"data", "WHAT", CLI_DATA, AT(data),
                       .help = "fashion, fashion:DIR, mnist:DIR, cifar10:DIR, text:FILE or glyphs"},
    [CLI_FLAG_BATCH] = {"batch", "N", COUNT(batch, 1, 65536), .help = "samples per worker and step"},
    [CLI_FLAG_EXCHANGE] = {"exchange", "NAME", CLI_NAME, AT(exchange), .choices = exchanges,
                           .help = "allreduce, gather, shard, server, lowrank, lgc-ring or lgc-server\n"
                                   "[default: by recipe and workers]"},
    [CLI_FLAG_LINK] = {"link", "LINK", CLI_LINK, AT(link), .choices = links,
                       .help = "threads: workers are threads of this process; mpi: processes started by mpirun\n"
                               "[default: mpi if a launcher such as mpirun has started this, else threads]. A rate,\n"
                               "100mbit or 100mbit,1ms: threads whose messages are delayed by the time that their\n"
                               "bytes would take at that rate and latency (an emulation; 'tersegrad help link')"},
    [CLI_FLAG_HOSTS] = {"hosts", "auto|flat|SIZE", CLI_HOSTS, AT(hosts),
                        .help = "workers per host. They average among themselves first; one of them then exchanges by\n"
                                "the recipe with other hosts. auto: as mpirun has placed them, if several hosts have\n"
                                "several workers each; flat: all exchange by the recipe [default: auto]"},
    [CLI_FLAG_TIMEOUT] = {"timeout", "S", REAL(timeout, 0, 1e6, 0),
                          .help = "seconds of silence after which another process counts as lost"},
    [CLI_FLAG_GROUP_SIZE] =
        {"group-size", "BYTES", COUNT(group_size, 0, any),
         .help = "bytes of gradients that are encoded and sent together, last layers first, while the\n"
                 "backward pass continues; 0: all after it. Tensors are not divided, and the first groups\n"
                 "are smaller. The bits of the result do not depend on it. With local steps there is one\n"
                 "group unless this is given"},
    [CLI_FLAG_OPTIMIZER] = {"optimizer", "NAME", CLI_CHOICE, AT(optimizer), .choices = optimizers,
                            .help = "sgd or adam"},
    [CLI_FLAG_RATE] = {"rate", "X", REAL(rate, 0, 1000, 0),
                       .help = "learning rate [default: 0.01 for sgd, 0.001 for adam]"},
    [CLI_FLAG_MOMENTUM] = {"momentum", "X", REAL(momentum, 0, 1, 1),
                           .help = "momentum of sgd; use 0 if the recipe has momentum itself, as dgc does"},
    [CLI_FLAG_NESTEROV] = {"nesterov", NULL, CLI_SWITCH, AT(nesterov), .help = "use Nesterov momentum (sgd)"},
    [CLI_FLAG_WEIGHT_DECAY] = {"weight-decay", "X", REAL(weight_decay, 0, 1, 1),
                               .help = "weight decay of all tensors but norms and biases"},
    [CLI_FLAG_SCHEDULE] = {"schedule", "NAME", CLI_CHOICE, AT(schedule), .choices = schedules,
                           .help = "of the learning rate: constant, step (a tenth after each third), cosine"},
    [CLI_FLAG_WARMUP] = {"warmup", "N", COUNT(warmup, 0, 1e9),
                         .help = "steps in which the learning rate grows to its value"},
    [CLI_FLAG_AUGMENT] = {"augment", NULL, CLI_SWITCH, AT(augment),
                          .help = "shift images at random, and mirror them where the data set allows it"},
    [CLI_FLAG_LOCAL_STEPS] = {"local-steps", "H", CLI_ROUNDS, AT(local),
                              .help = "steps that a worker takes on its own between exchanges; or a schedule, such as\n"
                                      "1,200:4,2000:8: 4 for rounds that begin at step 200 or later, then 8\n"
                                      "('tersegrad help local-steps')"},
    [CLI_FLAG_OUTER] = {"outer", "HOW", CLI_OUTER, AT(outer),
                        .help = "with local steps, how the averaged moves are applied: average, nesterov or\n"
                                "nesterov@lr=0.7,momentum=0.9"},
    [CLI_FLAG_QUORUM] = {"quorum", "Q", COUNT32(quorum, 1, 65536),
                         .help =
                             "with local steps, workers that must be done before a round can end. Others get --grace\n"
                             "seconds, and then add their moves to a later round [default: all]"},
    [CLI_FLAG_GRACE] = {"grace", "S", REAL(grace, 0, 1e6, 1), .help = "seconds that a quorum waits for late workers"},
    [CLI_FLAG_LATE] = {"late", "RANK:TIME", CLI_LATE, AT(late),
                       .help = "for tests: makes this worker slower by TIME in every step, such as 2:300ms"},
    [CLI_FLAG_TEST_EVERY] = {"test-every", "N", COUNT(test_every, 0, 1e9),
                             .help = "steps between tests; 0: only at the end [default: once an epoch]"},
    [CLI_FLAG_VERIFY_EVERY] = {"verify-every", "N", COUNT(verify_every, 0, 1e9),
                               .help = "steps between comparisons of all workers' weights; 0: only at the end"},
    [CLI_FLAG_LOG] = {"log", "FILE.jsonl", CLI_TEXT, AT(log), .help = "write a line of JSON for every step and test"},
    [CLI_FLAG_GRADIENTS] = {"gradients", "DIR", CLI_TEXT, AT(gradients),
                            .help = "write gradients there, a folder of .npy files for every step: those of worker 0\n"
                                    "(similarity: of all workers)"},
    [CLI_FLAG_CHECKPOINT] = {"checkpoint", "FILE", CLI_TEXT, AT(checkpoint),
                             .help =
                                 "save the run there periodically; a regular file or a link to one, which need not\n"
                                 "exist yet"},
    [CLI_FLAG_CHECKPOINT_EVERY] = {"checkpoint-every", "N", COUNT(checkpoint_every, 1, 1e9),
                                   .help = "steps between saves"},
    [CLI_FLAG_RESUME] = {"resume", NULL, CLI_SWITCH, AT(resume),
                         .help = "continue from --checkpoint if it exists; the result is the same to the bit"},
    [CLI_FLAG_EVERY] = {"every", "N", COUNT(every, 1, 1e9),
                        .help = "steps between comparisons [default: about 20 of them in the run]"},
    [CLI_FLAG_RATIO] = {"ratio", "R", REAL(ratio, 0, 1, 0),
                        .help = "fraction of a tensor's values that count as its largest"},
    [CLI_FLAG_SEEDS] = {"seeds", "N", COUNT32(seeds, 1, 100),
                        .help = "runs of every recipe, with seeds from --seed on"},
    [CLI_FLAG_TARGET] = {"target", "PERCENT", REAL(target, 1, 100, 1),
                         .help = "print the time to this test accuracy [default: 98% of what dense ends with]"},
    [CLI_FLAG_PARAMS] = {"params", "N", CLI_SIZE, AT(params), .min = 1, .max = 1e13,
                         .help = "a model with this many parameters, such as 25e6, in 32 matrices of one size"},
    [CLI_FLAG_MODEL_SHAPES] =
        {"shapes", "FILE", CLI_TEXT, AT(shapes),
         .help = "a model with these tensors: a JSON list, as tersegrad.torch.write_shapes writes it, or\n"
                 "one line per tensor, such as 'conv1 64x3x7x7'"},
    [CLI_FLAG_MODEL_GROUPS] = {"group-size", "BYTES", COUNT(group_size, 0, any),
                               .help =
                                   "bytes of gradients that are encoded and sent together, while the backward pass\n"
                                   "continues; 0: all after it [default: an eighth of the model, at least 131072]"},
    [CLI_FLAG_RANKS] = {"workers", "W", COUNT32(ranks, 2, 4096), .help = "workers, 2 to 4096"},
    [CLI_FLAG_HOST_COUNT] = {"hosts", "H", COUNT32(host_count, 1, 4096),
                             .help = "hosts, each with the same number of workers [default: one per worker]"},
    [CLI_FLAG_LINK_RATE] =
        {"rate", "RATE", CLI_BITS, AT(link_rate),
         .help = "rate of a host's link in each direction, such as 1gbit [default: measured by --probe]"},
    [CLI_FLAG_LATENCY] =
        {"latency", "TIME", CLI_TIME, AT(latency), .max = 10, .min_allowed = 1,
         .help = "latency of a message between hosts, such as 50us [default: measured by --probe, else 0]"},
    [CLI_FLAG_COMPUTE] = {"compute", "TIME", CLI_TIME, AT(compute), .max = 1e5, .min_allowed = 1,
                          .help =
                              "time of the forward and backward pass, such as 120ms [default with --model: measured\n"
                              "by training a few steps]"},
    [CLI_FLAG_BACKWARD] = {"backward", "TIME", CLI_TIME, AT(backward), .max = 1e5, .min_allowed = 1,
                           .help = "time of the backward pass alone [default: two thirds of --compute]"},
    [CLI_FLAG_COMPUTE_ON] = {"compute-on", "WHERE", CLI_CHOICE, AT(compute_on), .choices = sides,
                             .help =
                                 "host: a worker computes on one of its host's cores; device: on an accelerator, and\n"
                                 "the cores are free for codecs and messages [default: as --device]"},
    [CLI_FLAG_CORES] = {"cores", "C", REAL(cores, 0, 65536, 0),
                        .help = "cores of a host, for all its workers; may be a fraction [default: of this machine]"},
    [CLI_FLAG_PROBE] = {"probe", "FILE", CLI_TEXT, AT(probe),
                        .help = "costs measured by 'tersegrad probe' [default: measures this machine for a second]"},
    [CLI_FLAG_KNOWN] = {"probe", "FILE", CLI_TEXT, AT(probe), .help = "do not measure again what this file has"},
    [CLI_FLAG_ADVISE] = {"advise", NULL, CLI_SWITCH, AT(advise),
                         .help = "after 20 steps, print what was measured and whether another recipe, or none, would\n"
                                 "be faster"},
    [CLI_FLAG_CONFIG] = {"config", "FILE", CLI_TEXT, AT(config),
                         .help = "read flags from this file, one per line; flags on the command line win"},
    [CLI_FLAG_PAGE] = {"page", "FILE.html", CLI_TEXT, AT(page), .help = "write a page with curves and charts there"},
    [CLI_FLAG_JSON] = {"json", NULL, CLI_SWITCH, AT(json), .help = "print one JSON object instead of text"},
    [CLI_FLAG_CSV] = {"csv", NULL, CLI_SWITCH, AT(csv), .help = "print comma-separated values instead of text"},
};
