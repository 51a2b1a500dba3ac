/*
 * The lease protocol, for spin. README.md says how to run it, and what is left out.
 *
 * An atomic step is one statement of the database, or what a worker does by itself. Its comment names the file of
 * src/tenure/store/sql that it stands for. Between two steps anything may happen: the other worker, the clock, the
 * sweep, a fault. What is on its way when its sender dies is the same as what came before that.
 */

#ifndef LIMIT
#define LIMIT 2 /* claims a job may spend, 3 at the most */
#endif
#ifndef LEASE
#define LEASE 2 /* ticks of the clock in a lease */
#endif
#ifndef STOPS
#define STOPS 1 /* how often worker 0 is stopped; it is continued at any moment, or never */
#endif
#ifndef CRASHES
#define CRASHES 1 /* how often worker 1 forgets all that it knows */
#endif
#ifndef LOSSES
#define LOSSES 1 /* how many requests or answers are lost */
#endif

/* Two ways to get it wrong, for DEDUP_OWN_COMMIT: on which side of the effect the dedup row has a commit of its own. */
#define BEFORE 1
#define AFTER 2
#ifndef DEDUP_OWN_COMMIT
#define DEDUP_OWN_COMMIT 0
#endif

/* ------------------------------------------------------------------------------------------------ what there is */

/* A job, as the database has it: where it is, and its columns there. */
typedef Job {
	bool live = true; /* in the hot table, put there by accept.sql */
	bool running;     /* its state there, else pending */
	byte token;       /* 0 is null */
	byte left;        /* ticks until lease_until */
	byte claims;
	byte attempts;
	bool done;        /* in the archive */
	bool dead;        /* among the dead letters */
	byte settled_by;  /* the token that is kept with what has ended */
	byte right[4]     /* kept to judge by: for each claim, the ticks for which its worker was given the job */
};

mtype = { IDLE, UNSURE, HANDLING, BEGINNING, WRITING, WRITTEN, SETTLING, ASKING };
mtype = { COMPLETE, RETRY, BURY };

/* What a worker knows. A crash takes all of it. */
typedef Worker {
	mtype doing = IDLE;
	mtype wish;       /* how the attempt is to end */
	byte job;
	byte token;
	bool last;        /* no attempt is left after this one */
	bool resent;      /* the settlement was sent before ... */
	bool applied;     /* kept to judge by: ... and has come through */
	byte nth          /* kept to judge by: the claim, by its number */
};

Job job[2];
Worker worker[2];
bool dedup;     /* the dedup row is committed */
byte inserting; /* 1 + the worker whose open transaction has written the dedup row; 0: there is none */
byte effects;   /* that are committed */
bool stopped;   /* worker 0 is, ... */
bool for_good;  /* ... and never continues */
byte stops = STOPS, crashes = CRASHES, losses = LOSSES;

#ifdef NATURAL_KEY
#define has_effect(j) true /* both jobs are for one effect */
#else
#define has_effect(j) (j == 1)
#endif

#define me worker[_pid]
#define my job[me.job]
#define goes(w) (w == 1 || !stopped)
#define i_am(what) (goes(_pid) && me.doing == what)
#define due(j) (job[j].live && !job[j].running)
#define ended(j) (job[j].done || job[j].dead)
#define holds(j, its_token) (job[j].live && job[j].token == its_token && job[j].left > 0)

/* fragments/mine.sql */
#ifdef SETTLE_BY_ID
#define fence(j, its_token) (job[j].live)
#else
#define fence(j, its_token) holds(j, its_token)
#endif

/* --------------------------------------------------------------------------------------------- what is promised */

/* pan names the promise that is broken. */
bool one_valid_lease, old_token_never_counts, in_one_place, within_the_limit, one_effect, done_with_its_effect,
     repeat_is_recognised;
#define promise(name, is_kept) name = (is_kept); assert(name); name = false

#define rights(j) (job[j].right[1] + job[j].right[2] + job[j].right[3])
#define moved(j) promise(in_one_place, job[j].live + job[j].done + job[j].dead == 1)

#ifdef LIVENESS /* with weak fairness: what can go on goes on */
ltl every_job_ends { <> (ended(0) && ended(1)) }
#endif

/* -------------------------------------------------------------------------------------------------- the workers */

inline forget(w)
{
	worker[w].doing = IDLE; worker[w].wish = 0; worker[w].job = 0; worker[w].token = 0; worker[w].last = false;
	worker[w].resent = false; worker[w].applied = false; worker[w].nth = 0
}

inline roll_back(w)
{
	if
	:: inserting == w + 1 -> inserting = 0
	:: else
	fi
}

inline claim(j)
{
	job[j].claims++; job[j].attempts++;
	promise(within_the_limit, job[j].attempts <= LIMIT);
	promise(one_valid_lease, rights(j) == 0);
	job[j].running = true; job[j].token = job[j].claims; job[j].left = LEASE;
	moved(j);
	me.job = j; me.token = job[j].token; me.last = (job[j].attempts == LIMIT);
	me.nth = job[j].claims; job[j].right[me.nth] = LEASE;
	if
	:: me.doing = HANDLING
	:: losses > 0 -> losses--; me.doing = UNSURE
	fi
}

/* A settlement has passed the fence: the lease ends with it. */
inline counts()
{
	promise(old_token_never_counts, my.right[me.nth] > 0);
	promise(one_valid_lease, rights(me.job) == my.right[me.nth]);
	my.right[me.nth] = 0;
	my.running = false; my.token = 0; my.left = 0
}

inline complete()
{
	counts();
	my.live = false; my.done = true; my.settled_by = me.token;
	moved(me.job);
	promise(done_with_its_effect, !has_effect(me.job) || effects == 1)
}

inline retry()
{
	counts();
	moved(me.job)
}

inline bury()
{
	counts();
	my.live = false; my.dead = true; my.settled_by = me.token;
	moved(me.job)
}

inline take_effect()
{
	effects++;
	promise(one_effect, effects == 1)
}

inline failed()
{
	me.doing = SETTLING;
	if
	:: me.last -> me.wish = BURY
	:: else -> me.wish = RETRY
	fi
}

active [2] proctype work()
{
end:	do
	/* claim.sql, and claim_suspects.sql after an expired lease. The answer comes, or is lost. */
	:: atomic { i_am(IDLE) && due(0) -> claim(0) }
	:: atomic { i_am(IDLE) && due(1) -> claim(1) }

	/* adopt.sql: what is held by the token of the claim whose answer was lost. */
	:: atomic { i_am(UNSURE) ->
		if
		:: holds(me.job, me.token) -> me.doing = HANDLING
		:: else -> forget(_pid)
		fi }

	/* By itself: the handler comes to its end, begins an effect, or fails. */
	:: atomic { i_am(HANDLING) ->
		if
		:: !has_effect(me.job) -> me.wish = COMPLETE; me.doing = SETTLING
		:: has_effect(me.job) -> me.doing = BEGINNING
		:: failed()
		fi }

	/* dedup.sql: it waits for another transaction that has written the row. */
	:: atomic { i_am(BEGINNING) && inserting == 0 ->
		if
		:: dedup -> me.wish = COMPLETE; me.doing = SETTLING
		:: else ->
#if DEDUP_OWN_COMMIT == BEFORE
			dedup = true;
#elif DEDUP_OWN_COMMIT == 0
			inserting = _pid + 1;
#endif
			me.doing = WRITING
		fi }

	/* By itself: the handler writes, which nobody sees before the commit. */
	:: atomic { i_am(WRITING) ->
#if DEDUP_OWN_COMMIT == AFTER
		take_effect();
#endif
		me.doing = WRITTEN }

	/* complete_effects.sql and the commit: dedup row, effect and completion, or none of them. A lost answer is not asked
	   for: the place of the job will tell. */
	:: atomic { i_am(WRITTEN) ->
		if
		:: DEDUP_OWN_COMMIT == 0 && inserting != _pid + 1 -> failed()
		:: else ->
			if
			:: fence(me.job, me.token) ->
#if DEDUP_OWN_COMMIT != AFTER
				take_effect();
#endif
				dedup = true; inserting = 0;
				complete()
			:: else -> roll_back(_pid)
			fi;
			forget(_pid)
		fi }

	/* By itself: the handler fails in its transaction, which is rolled back. */
	:: atomic { i_am(WRITING) || i_am(WRITTEN) -> roll_back(_pid); failed() }

	/* complete.sql, retry.sql or bury.sql. What passes the fence is answered, or the answer is lost. */
	:: atomic { i_am(SETTLING) ->
		if
		:: fence(me.job, me.token) ->
			if
			:: me.wish == COMPLETE -> complete()
			:: me.wish == RETRY -> retry()
			:: me.wish == BURY -> bury()
			fi;
			if
			:: forget(_pid)
			:: losses > 0 -> losses--; me.resent = true; me.applied = true
			fi
		:: else ->
			if
			:: me.resent -> me.doing = ASKING
			:: else -> forget(_pid)
			fi
		fi }
	/* The same three, lost on the way: complete.sql, retry.sql, bury.sql. */
	:: atomic { i_am(SETTLING) && losses > 0 -> losses--; me.resent = true }

	/* settled.sql: what has ended under this token. A retry leaves no trace and stays unknown. */
	:: atomic { i_am(ASKING) ->
		if
		:: me.wish == RETRY
		:: else -> promise(repeat_is_recognised, (my.settled_by == me.token) == me.applied)
		fi;
		forget(_pid) }
	od
}

/* What "lost" means to a worker: the handler is stopped. A settlement under way waits for its own answer. */
inline extend(w)
{
	if
	:: holds(worker[w].job, worker[w].token) ->
		promise(old_token_never_counts, job[worker[w].job].right[worker[w].nth] > 0);
		job[worker[w].job].left = LEASE; job[worker[w].job].right[worker[w].nth] = LEASE
	:: else ->
		if
		:: worker[w].doing == SETTLING || worker[w].doing == ASKING
		:: else -> roll_back(w); forget(w)
		fi
	fi
}

/* A worker's thread for heartbeats is stopped, and dies, with the worker. */
#define beats(w) (goes(w) && worker[w].doing != IDLE && worker[w].doing != UNSURE)

active proctype heartbeat()
{
end:	do
	/* extend.sql */
	:: atomic { beats(0) -> extend(0) }
	:: atomic { beats(1) -> extend(1) }
	od
}

/* ------------------------------------------------------------------------------------------------ the world around */

inline give_back(j)
{
	job[j].running = false; job[j].token = 0;
	if
	:: job[j].attempts < LIMIT
	:: else -> job[j].live = false; job[j].dead = true
	fi;
	moved(j)
}

#define expired(j) (job[j].running && job[j].left == 0)

active proctype sweep()
{
end:	do
	/* sweep.sql */
	:: atomic { expired(0) -> give_back(0) }
	:: atomic { expired(1) -> give_back(1) }
	od
}

#define less(ticks) ticks = (ticks > 0 -> ticks - 1 : 0)

inline tick(j)
{
	less(job[j].left); less(job[j].right[1]); less(job[j].right[2]); less(job[j].right[3])
}

active proctype clock()
{
end:	do
	/* No statement. Each job has ticks of its own, so that its lease can end at any point. */
	:: atomic { job[0].left > 0 -> tick(0) }
	:: atomic { job[1].left > 0 -> tick(1) }
	od
}

active proctype idle_timeout()
{
end:	do
	/* No statement. The server ends a transaction whose client is silent or gone. */
	:: atomic { inserting != 0 -> inserting = 0 }
	od
}

active proctype fault()
{
end:	do
	/* No statement. Worker 0 becomes a zombie, and worker 1 a new one. */
	:: atomic { !stopped && stops > 0 -> stops--; stopped = true; if :: for_good = true :: skip fi }
	:: atomic { stopped && !for_good -> stopped = false }
	:: atomic { crashes > 0 && worker[1].doing != IDLE -> crashes--; forget(1) }
	od
}
