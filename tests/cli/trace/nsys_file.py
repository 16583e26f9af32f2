# SPDX-License-Identifier: Apache-2.0
"""Writes a file as `nsys export --type sqlite` does, by the published schema: "SQLite Export Schema Reference" of Nsight
Systems, docs.nvidia.com/nsight-systems/2021.5/nsys-exporter/exported_data.html (StringIds, CUPTI_ACTIVITY_KIND_*,
NVTX_EVENTS) and UserGuide (TARGET_INFO_SESSION_START_TIME). Columns that nobody reads are left out of the tables here
only where the schema lets them be null."""
import sqlite3

TABLES = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
                                  "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, "
                                  "globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
                                  "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, "
                                  "globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, "
                                   "globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, "
                                   "returnValue INTEGER NOT NULL",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, "
                   "category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, "
                   "textId INTEGER, domainId INTEGER",
}
PUSH_POP = 59  # ENUM_NSYS_EVENT_TYPE: NvtxPushPopRange


class NsysFile:
    def __init__(self, path, start=10**18):
        self.file, self.strings = sqlite3.connect(path), {}
        self.tables, self.launches = set(), 0
        self.add("TARGET_INFO_SESSION_START_TIME", start, "", "")

    def add(self, table, *values):
        if table not in self.tables:  # lazily, as the reference says
            self.file.execute(f"CREATE TABLE {table} ({TABLES[table]})")
            self.tables.add(table)
        self.file.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(values))})", values)

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.add("StringIds", self.strings[text], text)
        return self.strings[text]

    @staticmethod
    def process(pid):
        return (1 << 56) | pid << 24

    def kernel(self, name, launched, begin, end, pid=100, device=0, thread=1):
        self.launches += 1
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", launched, launched + 5, 0, self.process(pid) | thread, self.launches,
                 self.string("cudaLaunchKernel"), 0)
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", begin, end, device, 1, 7, self.launches, self.process(pid),
                 self.string(name), self.string(name.split("(")[0]))

    def copy(self, begin, end, pid=100, device=0):
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", begin, end, device, 1, 9, 0, self.process(pid), 64, 1)

    def mark(self, text, begin, end, pid=100, interned=False):
        named = (None, self.string(text)) if interned else (text, None)
        self.add("NVTX_EVENTS", begin, end, PUSH_POP, None, None, None, named[0], self.process(pid) | 1, None, named[1], 0)

    def close(self):
        self.file.commit()
        self.file.close()
