// Cuts a piece into several that run one after the other, so that what only some of them need can
// come and go between them.
//
// Values that cross a cut become tensors of the stage; everything else stays as it was: the same
// nodes on the same values, and the last of the pieces is done when the one piece would have been.
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "base/result.h"
#include "planner/pieces.h"

namespace meshwright::planner {

// Per node of a graph the part that it is in, from 0. A node's operands are in its own part or an
// earlier one; of `input` nodes, which are in every part that reads them, the number says nothing.
using PartOfNode = std::vector<int>;

// Parts for nodes that are wanted in one (`wanted`: > 0; 0: anywhere): what depends on such a node
// follows it, what only later parts read goes to the first that does (so that it does not wait for
// them), the rest is in part 0.
PartOfNode PlaceNodes(const ir::Graph& graph, const std::vector<int>& wanted);

// The pieces, in order; parts without nodes have none. Adds tensors to the partition. The first
// keeps the name of the graph, the others have "+1", "+2" behind it. on_host: per node, the host
// runs it; empty: it runs none. Its nodes are in parts that have others of it only, and no node is
// wanted in the parts before and behind these. Errors: kInternal: a part reads a tensor that an
// earlier one has updated in place, or the host's nodes cannot be by themselves.
Result<std::vector<Piece>> CutPiece(const Piece& piece, const PartOfNode& parts,
                                    Partition& partition, const std::vector<bool>& on_host = {});

}  // namespace meshwright::planner
