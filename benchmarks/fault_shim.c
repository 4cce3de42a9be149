/* Makes the n-th operation of a kind on a file below given folders fail: for fault_loop.py.
 *
 * Preloaded (LD_PRELOAD) it does nothing until `fault_arm` is called, so that a program which is started
 * from the armed process is never touched. Linux only.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum operation { NONE, OPEN, WRITE, FSYNC, RENAME };

/* A write that comes through by half is no error, and must be gone on with. */
#define SHORT (-1)

static volatile enum operation armed = NONE;
static long failing_at;
static int failing_with;
static int is_lasting;
static char folders[8 * PATH_MAX];
static char report[PATH_MAX];
static atomic_long count;

/* Count the `operation`s below `below` (folders with a colon after each) and let the `at`-th fail with
 * `error`; all that follow as well if `lasting`. Each failure adds a line to the file `to`. */
void fault_arm(const char *below, int operation, long at, int error, int lasting, const char *to) {
    snprintf(folders, sizeof folders, "%s", below);
    snprintf(report, sizeof report, "%s", to);
    failing_at = at;
    failing_with = error;
    is_lasting = lasting;
    atomic_store(&count, 0);
    armed = (enum operation)operation;
}

long fault_count(void) { return atomic_load(&count); }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_below(const char *path) {
    for (const char *folder = folders; *folder;) {
        const char *end = strchr(folder, ':');
        if (strncmp(path, folder, end - folder) == 0 && path[end - folder] == '/') return 1;
        folder = end + 1;
    }
    return 0;
}

static int path_of(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0;
}

/* Tell whether this operation is the one that fails; errno is set then. */
static int fails(enum operation operation, const char *path, const char *name) {
    if (armed != operation || !is_below(path)) return 0;
    long number = atomic_fetch_add(&count, 1) + 1;
    if (number != failing_at && !(is_lasting && number > failing_at)) return 0;
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%ld %s %s\n", number, name, path);
    int to = syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (to >= 0) {
        syscall(SYS_write, to, line, length);
        syscall(SYS_close, to);
    }
    errno = failing_with;
    return 1;
}

static int fails_at(enum operation operation, int folder, const char *path, const char *name) {
    char whole[2 * PATH_MAX + 2], where[PATH_MAX];
    if (armed != operation) return 0;
    if (path[0] == '/') return fails(operation, path, name);
    if (folder == AT_FDCWD ? !getcwd(where, sizeof where) : !path_of(folder, where)) return 0;
    snprintf(whole, sizeof whole, "%s/%s", where, path);
    return fails(operation, whole, name);
}

static int fails_on(enum operation operation, int descriptor, const char *name) {
    char path[PATH_MAX];
    if (armed != operation || !path_of(descriptor, path)) return 0;
    return fails(operation, path, name);
}

#define OPENS(name)                                                                                    \
    int name(const char *path, int flags, ...) {                                                       \
        va_list more;                                                                                  \
        va_start(more, flags);                                                                         \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;                      \
        va_end(more);                                                                                  \
        return fails_at(OPEN, AT_FDCWD, path, #name) ? -1 : REAL(name)(path, flags, mode);             \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name)                                                                                 \
    int name(int folder, const char *path, int flags, ...) {                                           \
        va_list more;                                                                                  \
        va_start(more, flags);                                                                         \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;                      \
        va_end(more);                                                                                  \
        return fails_at(OPEN, folder, path, #name) ? -1 : REAL(name)(folder, path, flags, mode);       \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

/* What -D_FORTIFY_SOURCE makes of them. */
#define OPENS_FORTIFIED(name, plain)                                                                   \
    int name(const char *path, int flags) { return plain(path, flags); }
OPENS_FORTIFIED(__open_2, open)
OPENS_FORTIFIED(__open64_2, open64)

/* `half` is the same call for half of the bytes. */
#define WRITES(name, parameters, descriptor, whole, half)                                              \
    ssize_t name parameters {                                                                          \
        if (!fails_on(WRITE, descriptor, #name)) return REAL(name) whole;                              \
        return failing_with == SHORT ? REAL(name) half : -1;                                           \
    }
WRITES(write, (int to, const void *from, size_t size), to, (to, from, size), (to, from, (size + 1) / 2))
WRITES(pwrite, (int to, const void *from, size_t size, off_t at), to, (to, from, size, at),
       (to, from, (size + 1) / 2, at))
WRITES(pwrite64, (int to, const void *from, size_t size, off64_t at), to, (to, from, size, at),
       (to, from, (size + 1) / 2, at))
WRITES(writev, (int to, const struct iovec *from, int size), to, (to, from, size), (to, from, (size + 1) / 2))
WRITES(sendfile, (int to, int from, off_t *at, size_t size), to, (to, from, at, size),
       (to, from, at, (size + 1) / 2))
WRITES(sendfile64, (int to, int from, off64_t *at, size_t size), to, (to, from, at, size),
       (to, from, at, (size + 1) / 2))
WRITES(copy_file_range, (int from, off64_t *at, int to, off64_t *there, size_t size, unsigned flags), to,
       (from, at, to, there, size, flags), (from, at, to, there, (size + 1) / 2, flags))

#define TRUNCATES(name, offset)                                                                        \
    int name(int descriptor, offset size) {                                                            \
        if (failing_with != SHORT && fails_on(WRITE, descriptor, #name)) return -1;                    \
        return REAL(name)(descriptor, size);                                                           \
    }
TRUNCATES(ftruncate, off_t)
TRUNCATES(ftruncate64, off64_t)

#define SYNCS(name)                                                                                    \
    int name(int descriptor) {                                                                         \
        return fails_on(FSYNC, descriptor, #name) ? -1 : REAL(name)(descriptor);                       \
    }
SYNCS(fsync)
SYNCS(fdatasync)

int rename(const char *from, const char *to) {
    return fails_at(RENAME, AT_FDCWD, from, "rename") ? -1 : REAL(rename)(from, to);
}

int renameat(int folder, const char *from, int other, const char *to) {
    return fails_at(RENAME, folder, from, "renameat") ? -1 : REAL(renameat)(folder, from, other, to);
}

int renameat2(int folder, const char *from, int other, const char *to, unsigned flags) {
    return fails_at(RENAME, folder, from, "renameat2") ? -1 : REAL(renameat2)(folder, from, other, to, flags);
}
