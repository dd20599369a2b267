/* fsync that fails for what lies at some paths: preloaded into a real helper, since only it knows when it comes there.

   FAIL_FSYNC_OF is a part of the path, FAIL_FSYNC_WITH the errno. All else goes to the kernel. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int descriptor)
{
    char link[64], path[4096];
    const char *part = getenv("FAIL_FSYNC_OF"), *number = getenv("FAIL_FSYNC_WITH");
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 2);
    if (part != NULL && number != NULL && length > 0) {
        /* A slash at the end tells the folder itself from what is in it. */
        path[length] = '/';
        path[length + 1] = '\0';
        if (strstr(path, part) != NULL) {
            errno = atoi(number);
            return -1;
        }
    }
    return (int)syscall(SYS_fsync, descriptor);
}
