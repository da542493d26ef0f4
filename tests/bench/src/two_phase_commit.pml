/* Two-phase commit after Gray and Lamport, "Consensus on Transaction Commit": one process, one atomic step an action.
   Eight resource managers; each set has one bit a manager. */

#define N 8
#define BIT(set, r) (((set) >> (r)) & 1)
#define ALL ((1 << N) - 1)
#define CONSISTENT assert(committed == 0 || aborted == 0)
#define WORKING(r) (!BIT(sent, r) && !BIT(committed, r) && !BIT(aborted, r))

#define MANAGER(r) \
    :: d_step { decision == 0 && BIT(sent, r) -> seen = seen | (1 << r) } \
    :: d_step { WORKING(r) -> sent = sent | (1 << r) } \
    :: d_step { WORKING(r) -> aborted = aborted | (1 << r); CONSISTENT } \
    :: d_step { decision == 1 -> committed = committed | (1 << r); CONSISTENT } \
    :: d_step { decision == 2 -> aborted = aborted | (1 << r); CONSISTENT }

/* Has said that it is prepared; whose word the transaction manager has seen; how managers have ended. */
short sent = 0, seen = 0, committed = 0, aborted = 0;
/* 0 none, 1 commit, 2 abort */
byte decision = 0;

active proctype protocol()
{
end:
    do
    :: d_step { decision == 0 && seen == ALL -> decision = 1 }
    :: d_step { decision == 0 -> decision = 2 }
    MANAGER(0)
    MANAGER(1)
    MANAGER(2)
    MANAGER(3)
    MANAGER(4)
    MANAGER(5)
    MANAGER(6)
    MANAGER(7)
    od
}
