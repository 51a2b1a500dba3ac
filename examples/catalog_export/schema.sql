-- The catalogue: what the application is about. The exports read it and never write to it.
create table if not exists courses (
    code text primary key,
    title text not null,
    subject text not null
);
create table if not exists lessons (
    course text not null references courses (code),
    position int not null check (position > 0),
    title text not null,
    minutes int not null check (minutes > 0),
    summary text not null,
    primary key (course, position)
);

-- One row for each finished export. job_id is the primary key: a second row for one job cannot be.
-- There is no foreign key to courses: what was exported stays true when the course is gone.
create table if not exists exports (
    job_id uuid primary key,
    course text not null,
    file text not null,
    sha256 text not null,
    lessons int not null,
    minutes int not null,
    delivery uuid not null,
    exported_at timestamptz not null default now()
);
