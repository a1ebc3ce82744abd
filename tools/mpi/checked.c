// SPDX-License-Identifier: BSD-3-Clause
// Ping-pong and collectives of MPI, timed, with every value of every turn looked at.
//   mpirun ... checked BYTES OPERATION...
// One line for each operation and size: "pingpong 1048576 5: 812.5 us", where 5 is the number of
// turns and the time the median of what the slowest rank took.  A wrong value ends all ranks with
// status 1. BYTES is a list of sizes, in bytes, that 8 divides; for all-gather and all-to-all the
// size is one rank's part.
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TURNS_MAX = 100,
    TURNS_MIN = 5,
    TURNS_ONE_SIDED = 10,  // its additions wait for each other, from rank to rank
    WARM = 2,              // turns that are not timed
    TURN_BYTES = 64 << 20,  // about so many in all turns of one size: a window has time to grow
    BYTES_MAX = 64 << 20,
    RANKS_MAX = 64,
    TAG = 7,
};

static int rank, ranks;
static int64_t *out, *in;

// Differs by rank, place and turn, so that a value of another turn, or of another place, is a wrong
// one.
static int64_t value(int of, size_t at, int turn) {
    return (int64_t)of * 1000003 + (int64_t)at * 31 + (int64_t)turn * 7919;
}

static void fill(size_t count, int turn) {
    for (size_t i = 0; i < count; i++)
        out[i] = value(rank, i, turn);
}

static void wrong(const char* what, size_t at, int64_t got, int64_t wanted) {
    fprintf(stderr, "%s: rank %d, value %zu is %jd, not %jd\n", what, rank, at, (intmax_t)got,
            (intmax_t)wanted);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void look(const char* what, size_t at, int64_t wanted) {
    if (in[at] != wanted)
        wrong(what, at, in[at], wanted);
}

// Rank 0 and the last one; what comes back is what was sent, as the other one saw it.
static void pingpong(size_t bytes) {
    int last = ranks - 1;

    if (rank == 0) {
        MPI_Send(out, (int)bytes, MPI_BYTE, last, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, (int)bytes, MPI_BYTE, last, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == last) {
        MPI_Recv(in, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
}

static void look_pingpong(size_t count, int turn) {
    if (rank != 0 && rank != ranks - 1)
        return;
    for (size_t i = 0; i < count; i++)
        look("pingpong", i, value(rank == 0 ? ranks - 1 : 0, i, turn));
}

static void allreduce(size_t bytes) {
    MPI_Allreduce(out, in, (int)(bytes / 8), MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static void look_allreduce(size_t count, int turn) {
    for (size_t i = 0; i < count; i++)
        look("allreduce", i,
             ranks * value(0, i, turn) + (int64_t)ranks * (ranks - 1) / 2 * 1000003);
}

static void allgather(size_t bytes) {
    MPI_Allgather(out, (int)(bytes / 8), MPI_INT64_T, in, (int)(bytes / 8), MPI_INT64_T,
                  MPI_COMM_WORLD);
}

static void look_allgather(size_t count, int turn) {
    for (int of = 0; of < ranks; of++)
        for (size_t i = 0; i < count; i++)
            look("allgather", (size_t)of * count + i, value(of, i, turn));
}

static void alltoall(size_t bytes) {
    MPI_Alltoall(out, (int)(bytes / 8), MPI_INT64_T, in, (int)(bytes / 8), MPI_INT64_T,
                 MPI_COMM_WORLD);
}

static void look_alltoall(size_t count, int turn) {
    for (int of = 0; of < ranks; of++)
        for (size_t i = 0; i < count; i++)
            look("alltoall", (size_t)of * count + i, value(of, (size_t)rank * count + i, turn));
}

// Every rank adds to one counter in rank 0's memory, one-sided.  No two may have fetched the same
// value, and none is missing.
static MPI_Win window = MPI_WIN_NULL;

static void make_counter(void) {
    int64_t* memory;

    if (window == MPI_WIN_NULL) {
        MPI_Win_allocate(sizeof(*memory), sizeof(*memory), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                         &window);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
        *memory = 0;
        MPI_Win_unlock(rank, window);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void fetchadd(size_t bytes) {
    static const int64_t one = 1;

    make_counter();
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    for (size_t i = 0; i < bytes / 8; i++) {
        MPI_Fetch_and_op(&one, &in[i], MPI_INT64_T, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
    }
    MPI_Win_unlock(0, window);
}

static void look_fetchadd(size_t count, int turn) {
    int64_t all = (int64_t)count * ranks, first = (turn + WARM) * all, sum = 0, of_all;

    for (size_t i = 0; i < count; i++) {
        if (in[i] < first || in[i] >= first + all || (i && in[i] <= in[i - 1]))
            wrong("fetchadd", i, in[i], first);
        sum += in[i] - first;
    }
    MPI_Allreduce(&sum, &of_all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (of_all != all * (all - 1) / 2)
        wrong("fetchadd, sum", 0, of_all, all * (all - 1) / 2);
}

static const struct operation {
    const char* name;
    void (*run)(size_t bytes);
    void (*look)(size_t count, int turn);
    int trips;  // the time of one is what is told
    int parts;  // the size is of a part, one for each rank
    int turns_max;
} operations[] = {
    {"pingpong", pingpong, look_pingpong, 2, 0, TURNS_MAX},
    {"allreduce", allreduce, look_allreduce, 1, 0, TURNS_MAX},
    {"allgather", allgather, look_allgather, 1, 0, TURNS_MAX},
    {"alltoall", alltoall, look_alltoall, 1, 1, TURNS_MAX},
    {"fetchadd", fetchadd, look_fetchadd, 1, 0,
     TURNS_ONE_SIDED},  // of BYTES / 8 additions, for one size only
};

static int compare(const void* a, const void* b) {
    double x = *(const double*)a, y = *(const double*)b;

    return (x > y) - (x < y);
}

static int turns_of(const struct operation* op, size_t bytes) {
    size_t turns = TURN_BYTES / bytes, most = (size_t)op->turns_max;

    return (int)(turns > most ? most : turns < TURNS_MIN ? TURNS_MIN : turns);
}

// Each turn by itself, from a barrier on; filling and looking are not timed.
static void measure(const struct operation* op, size_t bytes) {
    static double mine[TURNS_MAX], slowest[TURNS_MAX];
    size_t count = bytes / 8;
    int turns = turns_of(op, bytes);

    for (int turn = -WARM; turn < turns; turn++) {
        fill(op->parts ? count * (size_t)ranks : count, turn);
        memset(in, 0xff, bytes * (size_t)ranks);
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        op->run(bytes);
        double took = MPI_Wtime() - began;
        op->look(count, turn);
        if (turn >= 0)
            mine[turn] = op->trips == 1 || rank == 0 ? took / op->trips : 0;
    }
    MPI_Reduce(mine, slowest, turns, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank != 0)
        return;
    qsort(slowest, (size_t)turns, sizeof(*slowest), compare);
    printf("%s %zu %d: %.1f us\n", op->name, bytes, turns, slowest[turns / 2] * 1e6);
    fflush(stdout);
}

static const struct operation* find(const char* name) {
    for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    fprintf(stderr, "no operation %s\n", name);
    exit(64);
}

static void measure_sizes(const struct operation* op, char* sizes) {
    for (char* at = sizes; *at;) {
        char* end;
        unsigned long bytes = strtoul(at, &end, 10);

        if (end == at || bytes == 0 || bytes % 8 || bytes > BYTES_MAX) {
            fprintf(stderr, "no size: %s\n", at);
            exit(64);
        }
        measure(op, bytes);
        at = *end == ',' ? end + 1 : end;
    }
}

static size_t largest(const char* sizes) {
    size_t most = 0;

    for (const char* at = sizes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t bytes = strtoul(at, NULL, 10);
        most = bytes > most ? bytes : most;
    }
    return most > BYTES_MAX ? BYTES_MAX : most;
}

static void leave(int number) {
    (void)number;
    _exit(0);
}

// Every value was looked at by now.  Where MPI_Finalize() is known not to end
// (docs/known-faults.md), CHECKED_FINALIZE_S says after how many seconds of it a rank leaves.
static void bound_finalize(void) {
    const char* seconds = getenv("CHECKED_FINALIZE_S");

    if (seconds) {
        signal(SIGALRM, leave);
        alarm((unsigned)strtoul(seconds, NULL, 10));
    }
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3 || ranks < 2 || ranks > RANKS_MAX) {
        fprintf(stderr, "usage: mpirun ... %s BYTES[,BYTES...] OPERATION..., with 2 to %d ranks\n",
                argv[0], RANKS_MAX);
        exit(64);
    }
    out = malloc(largest(argv[1]) * (size_t)ranks);
    in = malloc(largest(argv[1]) * (size_t)ranks);
    if (!out || !in) {
        perror("malloc");
        exit(1);
    }
    for (int i = 2; i < argc; i++)
        measure_sizes(find(argv[i]), argv[1]);
    if (window != MPI_WIN_NULL)
        MPI_Win_free(&window);
    bound_finalize();
    MPI_Finalize();
    free(out);
    free(in);
    return 0;
}
