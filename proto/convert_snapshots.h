// Between messages about snapshots, and what becomes of saved state, and their wire types
// (proto/convert.h has the rest).
//
// Thread rule: pure functions.
#pragma once

#include "proto/meshwright.pb.h"
#include "proto/messages.h"

namespace meshwright::proto {

void Put(const SnapshotTaken& m, v1::SnapshotTaken& out);
void Put(const SnapshotsHeld& m, v1::Up& wire);
void Put(const SnapshotCopied& m, v1::Up& wire);
void Put(const RestoreState& m, v1::Down& wire);
void Put(const CommitCheckpoint& m, v1::Down& wire);
void Put(const QuerySnapshots& m, v1::Down& wire);
void Put(const DropSnapshots& m, v1::Down& wire);
void Put(const CopySnapshot& m, v1::Down& wire);

SnapshotTaken Get(const v1::SnapshotTaken& wire);
SnapshotsHeld Get(const v1::SnapshotsHeld& wire);
RestoreState Get(const v1::RestoreState& wire);
CommitCheckpoint Get(const v1::CommitCheckpoint& wire);
QuerySnapshots Get(const v1::QuerySnapshots& wire);
DropSnapshots Get(const v1::DropSnapshots& wire);
CopySnapshot Get(const v1::CopySnapshot& wire);
SnapshotCopied Get(const v1::SnapshotCopied& wire);

}  // namespace meshwright::proto
