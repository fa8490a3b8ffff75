/* A model of the protocol of a step (docs/steps.md), for the model checker Spin. scripts/check-model checks all variants.
 *
 * One process is one rank: the exchange and the reducer of that rank together. The link is the array `wire`, one queue for each
 * channel, sender and receiver. Spin tries every order in which ranks and channels can make progress, and every moment at which a
 * fault can happen, and checks the assertions in each case. A run in which a live rank waits for ever is an error, too.
 *
 * Printed lines show a run that leads to an error: scripts/check-model NAME, then build/model/trail.txt.
 *
 * Macros choose the variant.
 *     size       N ranks, STEPS steps, ROUNDS rounds of each group
 *     lengths    of AHEAD groups go ahead of messages, by announcements; all ranks know those of the other groups
 *     pattern    SERVER: in even rounds only rank 0 receives, in odd rounds only rank 0 sends; otherwise everyone to everyone
 *     vote       DISSEMINATION, otherwise from everyone to everyone
 *     VOTE_ONLY  groups have no operations; a step is the vote alone. For more ranks
 *     faults     LOCAL: so many times a rank fails by itself: a NaN, a tensor that was never ready. N * STEPS: no limit
 *                DAMAGES: so many messages arrive damaged
 *                LOSSES: so many messages do not arrive; nothing after them on the same channel from the same rank does
 *                DEATHS: so many ranks die
 *                STOPS: so many times a rank stops for longer than the timeout, then continues
 *                EAGER: after a fault, a rank that waits for a live rank may time out, too. That one may itself be waiting for a
 *                rank that is lost, with a timer that started later
 *     BROKEN_*   a protocol with a flaw; Spin must find it
 *     REACH_*    an assertion that an outcome never happens; Spin must find that it does */

#ifndef N
#define N 3
#endif
#ifndef STEPS
#define STEPS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef AHEAD
#define AHEAD 1
#endif
#ifndef LOCAL
#define LOCAL 0
#endif
#ifndef DAMAGES
#define DAMAGES 0
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef STOPS
#define STOPS 0
#endif
#ifndef EAGER
#define EAGER 0
#endif

#define GROUPS 2
#define SLOTS 2 /* announcements under way at once */
#ifdef VOTE_ONLY
#define CHANNELS 1
#else
#define CHANNELS (1 + GROUPS + SLOTS)
#endif
#define IN_FLIGHT (ROUNDS + 1) /* messages that a queue holds; an assertion says that more are never needed */

/* ---- repetition over ranks and groups ----------------------------------------------------------------------------------- */

#if N == 3
#define ALL(test, a) (test(0, a) && test(1, a) && test(2, a))
#define ANY(test, a) (test(0, a) || test(1, a) || test(2, a))
#elif N == 4
#define ALL(test, a) (test(0, a) && test(1, a) && test(2, a) && test(3, a))
#define ANY(test, a) (test(0, a) || test(1, a) || test(2, a) || test(3, a))
#elif N == 5
#define ALL(test, a) (test(0, a) && test(1, a) && test(2, a) && test(3, a) && test(4, a))
#define ANY(test, a) (test(0, a) || test(1, a) || test(2, a) || test(3, a) || test(4, a))
#endif

/* Dissemination takes the base-2 logarithm of the world, rounded up, in rounds. */
#if N <= 4
#define VOTE_ROUNDS 2
#else
#define VOTE_ROUNDS 3
#endif
#ifdef BROKEN_TOO_FEW_ROUNDS
#define LAST_VOTE_ROUND (VOTE_ROUNDS - 2)
#else
#define LAST_VOTE_ROUND (VOTE_ROUNDS - 1)
#endif

/* ---- messages ------------------------------------------------------------------------------------------------------------ */

/* What a message says. Votes say a number below FRAME: see "votes". An announcement says ANNOUNCEMENT + what it says of group 0 + 3 times
 * what it says of group 1. */
#define NOTHING_NEW 0
#define LENGTH 1        /* of a message to come */
#define LENGTH_FAILED 2 /* no message follows */
#define ANNOUNCEMENT 30
#define SAID_OF(g, said) ((g) == 0 -> ((said) - ANNOUNCEMENT) % 3 : ((said) - ANNOUNCEMENT) / 3)
#define FRAME 22         /* a message with data */
#define POISON 23        /* a message that begins with TGER */
#define DAMAGED 24       /* a message whose check fails */
#define LOST 25          /* in place of a message that never arrives; the receiver does not see it, but may time out */

/* A queue of the link. Each message has its content, its operation, and the reason in a vote. The operation is no part of the
 * protocol: the receiver asserts that it is the operation that it is in. */
#define WIRES (CHANNELS * N * (N - 1))
chan wire[WIRES] = [IN_FLIGHT] of { byte, byte, byte };

#ifdef BROKEN_ONE_CHANNEL
#define CHANNEL(g) 1
#else
#define CHANNEL(g) ((g) + 1)
#endif
#define CLOSING 0 /* the channel of votes */
#define LENGTHS(number) (1 + GROUPS + (number) % SLOTS) /* of an announcement */
#define WIRE(channel, from, to) wire[((channel) * N + (from)) * (N - 1) + (to) - ((to) > (from))]

/* Whether a round has a message between two ranks. */
#ifdef SERVER
#define TALKS(from, to, round) ((from) != (to) && ((round) % 2 == 0 -> (to) == 0 : (from) == 0))
#else
#define TALKS(from, to, round) ((from) != (to))
#endif

#define LENGTHS_AHEAD(g) ((g) < AHEAD)

/* Operations of the protocol, numbered over the whole run. */
#define OPERATION(step, round, kind) (((step) * 4 + (round)) * 4 + (kind))
#define OF_MESSAGES(g) ((g) + 1)
#define OF_LENGTHS(step, number) (128 + (step) * 32 + (number))

/* ---- votes --------------------------------------------------------------------------------------------------------------- */

/* A vote is a number, and merging two votes takes the smaller one: r: rank r failed by itself; N + r: no rank is known to have
 * failed by itself, but rank r received poison; 2 N: all are well. */
#define BY_ITSELF(r) (r)
#define BY_OTHERS(r) (N + (r))
#define NOBODY (2 * N)
#define NO_VOTE 255

/* ---- what happened: seen by assertions and faults, not by ranks ---------------------------------------------------------- */

#define COMMITTED 1
#define FAILED 2 /* by vote */
#define LINK 3   /* the link failed: TG_E_LINK */

#define AT(step, r) ((step) * N + (r))
byte vote_of[STEPS * N] = NO_VOTE; /* the vote that a rank cast */
bool own_failure[STEPS * N];       /* a rank failed by itself: a local failure, or a damaged message */
bool poisoned[STEPS * N];          /* a rank lacks a message of another, or received poison in place of it */
byte result[STEPS * N];            /* 0: not ended */
byte named[STEPS * N];             /* the rank that a failed vote names */
bool in_closing[STEPS * N];        /* for LINK: the rank had cast its vote */

bool cut[N];     /* another rank has aborted the link; this rank may see it from now on */
bool dead[N];
bool absent[N];  /* dead, or its link has failed, or all its steps have ended: nobody receives what is sent to this rank */
bool stopped[N];
byte locals, damages, losses, deaths, stops;
bool link_fault; /* something happened after which a link may fail */
bool forged;     /* damage has made a message look like poison */
byte ended;

/* What a rank knows of itself in a step. */
#define WELL 0
#define FAILED_BY_ITSELF 1
#define FAILED_BY_OTHERS 2

/* ---- waiting -------------------------------------------------------------------------------------------------------------- */

/* A group on a rank. PENDING: the next round is not started; its gradients may not be ready. ENCODED: its lengths are announced now.
 * WAITING: others are to announce theirs. CLEARED: all have. */
#define PENDING 0
#define ENCODED 1
#define WAITING 2
#define CLEARED 3
#define IN_MESSAGES 4
#define DONE 5

/* "Something has arrived from p", and "the wait for p ends by timeout": what is awaited is lost, or p is, or does nothing. */
#define HERE(p, channel) (nempty(WIRE(channel, p, me)) && !(WIRE(channel, p, me)?[LOST, _, _]))
#define EXPIRED(p, channel) \
    (WIRE(channel, p, me)?[LOST, _, _] || (empty(WIRE(channel, p, me)) && (dead[p] || stopped[p] || (EAGER && link_fault))))

/* Whether this rank awaits a message of p in the round of group g. A rank that announced a failure sends none. */
#define EXPECTED(p, g) (TALKS(p, me, round[g]) && ((silent[g] >> (p)) & 1) == 0)

#define MESSAGE_HERE(p, g) (!EXPECTED(p, g) || HERE(p, CHANNEL(g)))
#define MESSAGE_EXPIRED(p, g) (EXPECTED(p, g) && EXPIRED(p, CHANNEL(g)))
#define GROUP_EXPIRED(g) (phase[g] == IN_MESSAGES && ANY(MESSAGE_EXPIRED, g))

/* Announcements: those that are under way, and when the next one starts. */
#define EVERYONE ((1 << N) - 1)
#define UNDER_WAY (started - heard)
#define LENGTHS_HERE_OF(p, number) (p == me || HERE(p, LENGTHS(number)))
#define LENGTHS_HERE(number) (started > (number) && ALL(LENGTHS_HERE_OF, number))
#define LENGTHS_EXPIRED_OF(p, number) (p != me && EXPIRED(p, LENGTHS(number)))
#define LENGTHS_EXPIRED(number) (started > (number) && ANY(LENGTHS_EXPIRED_OF, number))
#define NEW(g) (LENGTHS_AHEAD(g) && phase[g] == PENDING) /* may be encoded, or not yet */
#define SOME_OWE (told[0] != 0 || told[1] != 0)
#define OWES_OF(g) (told[g] != 0 && ((told[g] >> me) & 1) == 0)
#ifdef BROKEN_EMPTY_IN_DEBT
#define OWES false
#else
#define OWES (OWES_OF(0) || OWES_OF(1))
#endif

#ifdef DISSEMINATION
#define VOTE_TO ((me + (1 << vote_round)) % N)
#define VOTE_FROM ((me + N - (1 << vote_round)) % N)
#define VOTES_HERE HERE(VOTE_FROM, CLOSING)
#define VOTES_EXPIRED EXPIRED(VOTE_FROM, CLOSING)
#else
#define VOTE_HERE(p, a) (p == me || HERE(p, CLOSING))
#define VOTE_EXPIRED(p, a) (p != me && EXPIRED(p, CLOSING))
#define VOTES_HERE ALL(VOTE_HERE, 0)
#define VOTES_EXPIRED ANY(VOTE_EXPIRED, 0)
#endif

#ifdef VOTE_ONLY
#define ALL_DONE true
#else
#define ALL_DONE (phase[0] == DONE && phase[1] == DONE)
#endif
#ifdef BROKEN_VOTES_BEFORE_LENGTHS
#define ALL_HEARD true
#else
#define ALL_HEARD (UNDER_WAY == 0)
#endif
#define VOTED (vote != NO_VOTE)

/* ---- failing ---------------------------------------------------------------------------------------------------- */

/* A failure of this rank's own: of several, the first counts. */
inline fail_by_itself()
{
    if
    :: state == WELL ->
        state = FAILED_BY_ITSELF;
        own_failure[AT(step, me)] = true;
        printf("rank %d, step %d: fails by itself\n", me, step)
    :: else
    fi
}

/* Any moment before the vote may be the one at which a rank fails by itself. It shows only when the rank sends or receives, so it is
 * enough to choose there. */
inline may_fail()
{
    if
    :: true
    :: LOCAL > locals && state == WELL -> locals++; fail_by_itself()
    fi
}

inline fail_by_others()
{
    if
    :: state == WELL -> state = FAILED_BY_OTHERS; printf("rank %d, step %d: fails by others\n", me, step)
    :: else
    fi;
    poisoned[AT(step, me)] = true
}

/* ---- sending ---------------------------------------------------------------------------------------------------------------- */

/* Sends one message, or what a fault makes of it. */
inline put(channel, to, said, operation, why)
{
    if
    :: absent[to] && link_fault
    :: else ->
        assert(nfull(WIRE(channel, me, to)));
        if
        :: WIRE(channel, me, to)!said, operation, why
        :: LOSSES > losses ->
            losses++;
            link_fault = true;
            printf("rank %d, step %d: its message to rank %d on channel %d is lost\n", me, step, to, channel);
            WIRE(channel, me, to)!LOST, operation, 0
        :: DAMAGES > damages ->
            damages++;
            printf("rank %d, step %d: its message to rank %d on channel %d is damaged\n", me, step, to, channel);
            WIRE(channel, me, to)!DAMAGED, operation, 0
        :: DAMAGES > damages && said == FRAME ->
            damages++;
            forged = true;
            printf("rank %d, step %d: its frame to rank %d on channel %d looks like poison\n", me, step, to, channel);
            WIRE(channel, me, to)!POISON, operation, 0
        :: dying
        fi
    fi
}

/* A rank that dies while it sends reaches any of the others, or none. Nothing but death may stop it between two messages: the
 * order of an operation's messages is the link's affair. */
inline may_die()
{
    if
    :: true
    :: DEATHS > deaths -> deaths++; dying = true; link_fault = true
    fi
}

/* After may_die and sends. */
inline die_if_dying()
{
    if
    :: dying -> dead[me] = true; printf("rank %d, step %d: dies\n", me, step); goto gone
    :: else
    fi
}

/* All ranks have announced their lengths of a group: its messages can go. */
inline clear_group(g)
{
    if
    :: told[g] == EVERYONE ->
        silent[g] = told_silent[g] & ~(1 << me);
        if
        :: silent[g] != 0 -> fail_by_others()
        :: else
        fi;
        told[g] = 0; told_silent[g] = 0;
        phase[g] = CLEARED
    :: else
    fi
}

/* What this rank says of a group. It may be the last to announce it. */
inline announce_group(g)
{
    if
    :: phase[g] == ENCODED ->
        phase[g] = WAITING;
        announced[g] = (state == WELL);
        told[g] = told[g] | (1 << me)
    :: else
    fi
}

#define SAYS_OF(g) (phase[g] != ENCODED -> NOTHING_NEW : (state == WELL -> LENGTH : LENGTH_FAILED))

inline start_announcement()
{
    may_fail();
    may_die();
    said = ANNOUNCEMENT + SAYS_OF(0) + 3 * SAYS_OF(1);
    p = 0;
    do
    :: p == N -> break
    :: p < N && p == me -> p++
    :: p < N && p != me -> put(LENGTHS(started), p, said, OF_LENGTHS(step, started), 0); p++
    od;
    printf("rank %d, step %d: announcement %d, %d\n", me, step, started, said - ANNOUNCEMENT);
    d_step {
        started++;
        assert(started <= N * AHEAD * ROUNDS); /* every one has news */
        announce_group(0);
        announce_group(1);
        clear_group(0);
        clear_group(1);
        said = 0;
        p = 0
    };
    die_if_dying()
}

/* A length that was announced binds: a rank that has failed since sends so many bytes all the same, the frame that it has encoded
 * or poison. */
inline start_messages(g)
{
    may_fail();
    said = FRAME;
    if
    :: state == WELL
    :: state != WELL && LENGTHS_AHEAD(g) && announced[g] -> said = FRAME
    :: state != WELL -> said = POISON
    fi;
    may_die();
    p = 0;
    do
    :: p == N -> break
    :: p < N && !TALKS(me, p, round[g]) -> p++
    :: p < N && TALKS(me, p, round[g]) ->
        if
        :: LENGTHS_AHEAD(g) && !announced[g] /* nothing is sent, and nothing is awaited */
#ifdef BROKEN_ANNOUNCED_NOT_SENT
        :: LENGTHS_AHEAD(g) && announced[g] && state != WELL
#endif
#ifdef BROKEN_NO_POISON
        :: !LENGTHS_AHEAD(g) && state != WELL
        :: (LENGTHS_AHEAD(g) && announced[g]) || (!LENGTHS_AHEAD(g) && state == WELL) ->
#else
        :: !LENGTHS_AHEAD(g) || announced[g] ->
#endif
            put(CHANNEL(g), p, said, OPERATION(step, round[g], OF_MESSAGES(g)), 0)
        fi;
        p++
    od;
    printf("rank %d, step %d: group %d, round %d, messages\n", me, step, g, round[g]);
    phase[g] = IN_MESSAGES;
#ifdef BROKEN_EARLY_RESIDUAL
    changed = true;
#endif
    said = 0;
    p = 0;
    die_if_dying()
}

inline send_vote()
{
    may_die();
#ifdef DISSEMINATION
#ifdef BROKEN_OWN_VOTE_ONLY
    put(CLOSING, VOTE_TO, vote_of[AT(step, me)], OPERATION(step, vote_round, 0), me);
#else
    put(CLOSING, VOTE_TO, vote, OPERATION(step, vote_round, 0), reason);
#endif
#else
    p = 0;
    do
    :: p == N -> break
    :: p < N && p == me -> p++
    :: p < N && p != me -> put(CLOSING, p, vote, OPERATION(step, 0, 0), reason); p++
    od;
    p = 0;
#endif
    die_if_dying()
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------- */

/* What a rank has announced of a group. Nobody announces the next round of a group before all have announced this one. */
inline hear_group(g)
{
    if
    :: SAID_OF(g, said) == NOTHING_NEW
    :: else ->
        assert(((told[g] >> p) & 1) == 0);
        told[g] = told[g] | (1 << p);
        told_silent[g] = told_silent[g] | ((SAID_OF(g, said) == LENGTH_FAILED -> 1 : 0) << p)
    fi
}

/* An announcement that is damaged leaves unknown how many bytes will come. The rank cannot go on: it treats the link as failed. */
inline take_announcement(number)
{
    may_fail();
    d_step {
        p = 0;
        do
        :: p == N -> break
        :: p < N && p == me -> p++
        :: p < N && p != me ->
            WIRE(LENGTHS(number), p, me)?said, operation, why;
            assert(operation == OF_LENGTHS(step, number));
            if
            :: said == DAMAGED ->
#ifdef BROKEN_LENGTH_GUESSED
                fail_by_itself();
                told[0] = told[0] | (1 << p);
                told_silent[0] = told_silent[0] | (1 << p)
#else
                link_fault = true; unclear = true
#endif
            :: else -> hear_group(0); hear_group(1)
            fi;
            p++
        od;
        heard++;
        clear_group(0);
        clear_group(1);
        said = 0; operation = 0; p = 0
    };
    if
    :: unclear -> goto link_failed
    :: else
    fi
}

inline take_messages(g)
{
    may_fail();
    d_step {
        p = 0;
        do
        :: p == N -> break
        :: p < N && !EXPECTED(p, g) -> p++
        :: p < N && EXPECTED(p, g) ->
            WIRE(CHANNEL(g), p, me)?said, operation, why;
            assert(operation == OPERATION(step, round[g], OF_MESSAGES(g)));
            if
            :: said == FRAME
            :: said == POISON -> fail_by_others()
            :: said == DAMAGED -> fail_by_itself()
            fi;
            p++
        od;
        said = 0; operation = 0; p = 0; silent[g] = 0; announced[g] = false;
        round[g]++;
        if
        :: round[g] == ROUNDS -> phase[g] = DONE; round[g] = 0
        :: else -> phase[g] = PENDING
        fi
    }
}

inline take_vote(from)
{
    WIRE(CLOSING, from, me)?said, operation, why;
    assert(operation == OPERATION(step, vote_round, 0));
    if
    :: said == DAMAGED ->
#ifdef BROKEN_DAMAGED_VOTE
        /* Too late for a failure of its own: the other ranks have this rank's vote. */
        own_failure[AT(step, me)] = true;
        vote = (vote < me -> vote : me);
        reason = (vote < me -> reason : me)
#else
        link_fault = true; unclear = true
#endif
    :: said != DAMAGED ->
#ifdef BROKEN_REASON
        if
        :: reason == me && said < vote -> reason = why
        :: else
        fi;
        vote = (said < vote -> said : vote)
#else
        if
#ifdef BROKEN_FIRST_NAMED
        :: said < vote && vote == NOBODY -> vote = said; reason = why
#else
        :: said < vote -> vote = said; reason = why
#endif
        :: else
        fi
#endif
    fi;
    said = 0; operation = 0; why = 0
}

inline take_votes()
{
    d_step {
#ifdef DISSEMINATION
        take_vote(VOTE_FROM);
        vote_round++
#else
        p = 0;
        do
        :: p == N -> break
        :: p < N && p == me -> p++
        :: p < N && p != me -> take_vote(p); p++
        od;
        p = 0
#endif
    };
    if
    :: unclear -> goto link_failed
    :: else
    fi
}

/* ---- the end of a step ------------------------------------------------------------------------------------------------------- */

/* What holds for a rank whose step has ended, and beside every rank whose step ended before. */
inline check_result()
{
    /* Gradients and residuals have changed if, and only if, the step succeeded on this rank. */
    assert(changed == (result[AT(step, me)] == COMMITTED));
    /* Without a fault of the link, no link fails. */
    assert(result[AT(step, me)] != LINK || link_fault);
    p = 0;
    do
    :: p == N -> break
    :: p < N ->
        /* A rank commits only after every rank has cast its vote and was well then. */
        assert(result[AT(step, me)] != COMMITTED ||
               (vote_of[AT(step, p)] == NOBODY && !own_failure[AT(step, p)] && !poisoned[AT(step, p)]));
        /* A rank that has failed by vote names the lowest rank that failed by itself, and that rank's reason. */
        assert(result[AT(step, me)] != FAILED || named[AT(step, me)] >= N || p >= named[AT(step, me)] || !own_failure[AT(step, p)]);
        if
        :: result[AT(step, p)] == 0 || result[AT(step, p)] == LINK || result[AT(step, me)] == LINK
        :: else ->
            /* Where the link did not fail, two ranks have the same result and name the same rank. */
            assert(result[AT(step, p)] == result[AT(step, me)] && named[AT(step, p)] == named[AT(step, me)])
        fi;
        /* The only exception: one commits, and for the other the link fails in the closing vote of the same step. */
        assert(!(result[AT(step, me)] == COMMITTED && result[AT(step, p)] == LINK) || in_closing[AT(step, p)]);
        assert(!(result[AT(step, p)] == COMMITTED && result[AT(step, me)] == LINK) || in_closing[AT(step, me)]);
#ifdef REACH_LOST_CLOSING
        assert(!(result[AT(step, p)] == COMMITTED && result[AT(step, me)] == LINK));
#endif
        p++
    od;
    p = 0
}

/* Forgets a step that has ended on all ranks, so that Spin does not tell apart what no longer matters. */
#define HAS_ENDED(p, a) (result[AT(step, p)] != 0)
inline forget_step()
{
    if
    :: ALL(HAS_ENDED, 0) ->
        do
        :: p == N -> break
        :: p < N ->
            vote_of[AT(step, p)] = NO_VOTE;
            own_failure[AT(step, p)] = false;
            poisoned[AT(step, p)] = false;
            result[AT(step, p)] = 0;
            named[AT(step, p)] = 0;
            in_closing[AT(step, p)] = false;
            p++
        od;
        p = 0
    :: else
    fi
}

/* The verdict of a vote that is complete: finish, or leave everything as before the step. Then the next step. */
inline end_step()
{
    if
    :: vote == NOBODY ->
        assert(ALL_DONE);
        printf("rank %d, step %d: commits\n", me, step);
        changed = true; /* finish: averages to the gradients, residuals committed */
        result[AT(step, me)] = COMMITTED
    :: vote != NOBODY ->
        printf("rank %d, step %d: fails by vote %d, reason of rank %d\n", me, step, vote, reason);
        result[AT(step, me)] = FAILED;
        named[AT(step, me)] = vote;
        /* The rank that is named failed by itself. If none did, damage has made a frame look like poison. */
        assert(vote < N -> own_failure[AT(step, vote)] : forged);
        assert(reason == (vote < N -> vote : vote - N))
    fi;
#ifdef REACH_COMMIT
    assert(result[AT(step, me)] != COMMITTED || step < STEPS - 1);
#endif
#ifdef REACH_FAILED_LAST
    assert(result[AT(step, me)] != FAILED || vote != N - 1 || me == N - 1);
#endif
#ifdef REACH_RECOVERY
    assert(!(failed_before && result[AT(step, me)] == COMMITTED));
    failed_before = (result[AT(step, me)] == FAILED);
#endif
#ifdef REACH_FORGED
    assert(result[AT(step, me)] != FAILED || vote < N);
#endif
    d_step {
        check_result();
        forget_step()
    };
    changed = false;
    vote = NO_VOTE;
    reason = 0;
    vote_round = 0;
    state = WELL;
    phase[0] = PENDING;
    phase[1] = PENDING;
    started = 0;
    heard = 0;
    step++;
    if
    :: step == STEPS -> goto gone
    :: else
    fi
}

/* ---- a rank ----------------------------------------------------------------------------------------------------------------- */

/* What the reducer does with a group. Gradients of groups get ready in any order. */
#ifdef VOTE_ONLY
#define GROUP(g)
#else
#define GROUP(g)                                                             \
    :: atomic { phase[g] == PENDING && !LENGTHS_AHEAD(g) -> start_messages(g) } \
    :: atomic { phase[g] == CLEARED -> start_messages(g) } \
    :: atomic { phase[g] == IN_MESSAGES && ALL(MESSAGE_HERE, g) -> take_messages(g) }
#endif

proctype rank(byte me)
{
    byte step;             /* the step that the rank is in */
    byte state = WELL;
    byte phase[GROUPS];
    byte round[GROUPS];
    bool announced[GROUPS]; /* this rank has announced a length, and not a failure */
    byte silent[GROUPS];    /* bit p: rank p has announced a failure, and sends nothing in this round */
    byte told[GROUPS];      /* bit p: rank p has announced the group's next messages ... */
    byte told_silent[GROUPS]; /* ... as failed */
    byte started, heard;    /* announcements */
    byte vote = NO_VOTE;   /* after it was cast: all that this rank knows */
    byte reason;           /* whose reason it knows */
    byte vote_round;
    bool changed;          /* gradients and residuals are no longer those before the step */
    bool unclear;          /* a length or a vote was damaged */
    bool dying;
    byte p, said, operation, why;
#ifdef REACH_RECOVERY
    bool failed_before;
#endif
#ifdef BROKEN_ANY_ORDER
    bool swapped;
#endif

    do
    GROUP(0)
    GROUP(1)
#ifndef VOTE_ONLY
    :: atomic { UNDER_WAY < SLOTS && NEW(0) -> phase[0] = ENCODED; start_announcement() }
#if AHEAD == 2
    :: atomic { UNDER_WAY < SLOTS && NEW(1) -> phase[1] = ENCODED; start_announcement() }
    :: atomic { UNDER_WAY < SLOTS && NEW(0) && NEW(1) -> phase[0] = ENCODED; phase[1] = ENCODED; start_announcement() }
#endif
#ifndef BROKEN_NO_EMPTY
    :: atomic { UNDER_WAY == 0 && SOME_OWE && !OWES -> start_announcement() }
#endif
#ifdef BROKEN_ANY_ORDER
    :: atomic { UNDER_WAY == 2 && LENGTHS_HERE(heard + 1) -> take_announcement(heard + 1); swapped = !swapped }
    :: atomic { !swapped && LENGTHS_HERE(heard) -> take_announcement(heard) }
    :: atomic { swapped && LENGTHS_HERE(heard - 1) -> take_announcement(heard - 1); swapped = false }
#else
    :: atomic { LENGTHS_HERE(heard) -> take_announcement(heard) }
#endif
#endif

    /* All groups have done all rounds: the closing vote. From here on, this rank's vote does not change. */
#ifdef BROKEN_SKIPS_ROUNDS
    :: atomic { ((ALL_DONE && ALL_HEARD) || state != WELL) && !VOTED ->
#else
    :: atomic { ALL_DONE && ALL_HEARD && !VOTED ->
#endif
        may_fail();
        if
        :: state == WELL -> vote = NOBODY
        :: state == FAILED_BY_ITSELF -> vote = BY_ITSELF(me)
#ifdef BROKEN_POISONED_IS_WELL
        :: state == FAILED_BY_OTHERS -> vote = NOBODY
#else
#ifdef BROKEN_POISONED_IS_NAMED
        :: state == FAILED_BY_OTHERS -> vote = BY_ITSELF(me)
#else
        :: state == FAILED_BY_OTHERS -> vote = BY_OTHERS(me)
#endif
#endif
        fi;
        printf("rank %d, step %d: votes %d\n", me, step, vote);
        vote_of[AT(step, me)] = vote;
        reason = me;
        send_vote();
#ifdef BROKEN_NO_WAIT
        end_step()
#endif
    }
#ifdef DISSEMINATION
    :: atomic { VOTED && VOTES_HERE && vote_round < LAST_VOTE_ROUND -> take_votes(); send_vote() }
    :: atomic { VOTED && VOTES_HERE && vote_round == LAST_VOTE_ROUND -> take_votes(); end_step() }
#else
    :: atomic { VOTED && VOTES_HERE -> take_votes(); end_step() }
#endif

    /* Faults of this rank. */
#ifdef BROKEN_LATE_FAILURE
    :: atomic { VOTED && vote == NOBODY -> own_failure[AT(step, me)] = true; vote = me; reason = me }
#endif
#if DEATHS > 0
    :: atomic { DEATHS > deaths -> deaths++; link_fault = true; dead[me] = true; printf("rank %d, step %d: dies\n", me, step); goto gone }
#endif
#if STOPS > 0
    :: atomic { STOPS > stops -> stops++; link_fault = true; stopped[me] = true; printf("rank %d, step %d: stops\n", me, step) };
       atomic { stopped[me] = false; printf("rank %d, step %d: continues\n", me, step) }
#endif

    /* Failures of the link: a timeout, or another rank has aborted it. */
#ifndef VOTE_ONLY
    :: atomic { GROUP_EXPIRED(0) -> goto link_failed }
    :: atomic { GROUP_EXPIRED(1) -> goto link_failed }
    :: atomic { LENGTHS_EXPIRED(heard) || LENGTHS_EXPIRED(heard + 1) -> goto link_failed }
#endif
    :: atomic { VOTED && VOTES_EXPIRED -> goto link_failed }
    :: atomic { cut[me] -> goto link_failed }
    od;

link_failed:
    /* The rank aborts the link, which reaches the others at any later moment. A rank that dies at that moment reaches some of them. */
    atomic {
        printf("rank %d, step %d: the link fails\n", me, step);
        result[AT(step, me)] = LINK;
        in_closing[AT(step, me)] = VOTED;
        d_step { check_result() };
#ifndef BROKEN_NO_ABORT
        may_die();
        do
        :: p == N -> break
#ifdef BROKEN_NO_ABORT_AFTER_ABORT
        :: p < N && cut[me] -> p++
        :: p < N && !cut[me] ->
#else
        :: p < N ->
#endif
            if
            :: p != me -> cut[p] = true
            :: p == me || dying
            fi;
            p++
        od;
        p = 0;
        dead[me] = dying
#endif
    }

gone:
    /* Clears what no longer matters, so that Spin does not tell it apart: this rank's variables, and messages to it. */
    atomic {
        true;
        d_step {
            absent[me] = true;
            step = 0; state = 0; vote = 0; reason = 0; vote_round = 0; changed = false; dying = false; unclear = false; said = 0; operation = 0; why = 0;
            phase[0] = 0; phase[1] = 0; round[0] = 0; round[1] = 0; announced[0] = false; announced[1] = false; silent[0] = 0; silent[1] = 0;
            told[0] = 0; told[1] = 0; told_silent[0] = 0; told_silent[1] = 0; started = 0; heard = 0;
            p = 0;
            do
            :: p == CHANNELS * N -> break
            :: p < CHANNELS * N && (p % N == me || !link_fault) -> p++
            :: p < CHANNELS * N && p % N != me && link_fault ->
                do
                :: nempty(WIRE(p / N, p % N, me)) -> WIRE(p / N, p % N, me)?_, _, _
                :: empty(WIRE(p / N, p % N, me)) -> break
                od;
                p++
            od;
            p = 0;
            ended++
        }
    }
}

/* Starts the ranks. If no link has failed and no rank has died, nothing is left in any queue, so that the next operation on each
 * channel finds its own messages. */
init
{
    byte p;
    atomic {
        do
        :: p == N -> break
        :: p < N -> run rank(p); p++
        od;
        p = 0
    }
    ended == N;
    atomic {
        do
        :: p == WIRES || link_fault -> break
        :: p < WIRES && !link_fault -> assert(empty(wire[p])); p++
        od
    }
}
