// The house rules, each a pure function from the sources to violations: "path:line: what; fix".
//
// The allowed edges and fences are the tables in layers.cc; docs/TOUR.md prints the edges.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace meshwright::tidy {

using Violations = std::vector<std::string>;

// room -> rooms it may include. Rooms that may include anything (cli, tests, bench, examples) are
// not listed.
const std::map<std::string, std::set<std::string>>& AllowedEdges();

// layers.cc
// Includes between rooms follow AllowedEdges.
Violations CheckEdges(const SourceTree& tree);
// The table itself has no cycle.
Violations CheckTableHasNoCycle(const std::map<std::string, std::set<std::string>>& edges);
// No header includes itself through others.
Violations CheckNoIncludeCycles(const SourceTree& tree);
// Third-party headers are included only where their fence allows; tests and bench are free.
Violations CheckFences(const SourceTree& tree);
// Quoted includes name existing files from the root ("base/status.h", not "status.h" or "../x.h").
Violations CheckIncludesAreRootRelative(const SourceTree& tree);
// x.cc includes x.h first. cmake/HeaderCheck.cmake compiles the headers that have no such file.
Violations CheckOwnHeaderComesFirst(const SourceTree& tree);

// What is installed exists, and includes of our headers only what is installed as well.
Violations CheckPublicHeaders(const SourceTree& tree, const std::set<std::string>& headers);

// shape.cc
// Files <= 600 lines, headers <= 300, lines <= 100 columns (counted in code points).
Violations CheckSizes(const SourceTree& tree);
// Functions <= 70 lines, in classes too. A lambda is part of the function that it stands in.
Violations CheckFunctionLength(const SourceTree& tree);
// Headers start with a comment that says what they are for, then a #pragma once.
Violations CheckHeaderComments(const SourceTree& tree);
// No sleeps, rand, std::endl, [=]; std::thread only in base, the backends of collective
// and worker. Tests are free.
Violations CheckBannedCalls(const SourceTree& tree);
// Whole numbers of JSON documents are taken by base/json_int.h alone. Seen within a line. Tests are
// free.
Violations CheckJsonInts(const SourceTree& tree);

// class_size.cc
struct ClassSize {
  int lines = 0;    // of the body, and of members defined outside of it
  int methods = 0;  // private ones too; no constructors and destructors
};
// Classes <= 200 lines and <= 20 methods, but for those in `allowed`: "path Class lines methods",
// rounded up to 50 lines and 5 methods. An entry that is larger than its class is a violation.
// Tests are free.
Violations CheckClassSizes(const SourceTree& tree, const std::vector<std::string>& allowed);

// counts.cc
// No id is cast to an index: Id::index() and IdVector are there. Seen within a line.
Violations CheckIdCasts(const SourceTree& tree);
// Each room of `least` has so many MW_CHECKs in 1000 lines of code. Below 10, the aim, the number
// is what the room has: one that is too low is a violation, too.
Violations CheckDensityOfChecks(const SourceTree& tree, const std::map<std::string, int>& least);

// comments.cc
// Comments cite only `files` of the tree; what stands in quotes is an example.
Violations CheckCitations(const SourceTree& tree, const std::set<std::string>& files);
// Comments that have lines of their own end like sentences.
Violations CheckCommentsEnd(const SourceTree& tree);

// locks.cc
// std::mutex and its kind stand only in the files of `own`, and in each of those. Tests are free.
Violations CheckLocks(const SourceTree& tree, const std::set<std::string>& own);
// Those of the project.
const std::set<std::string>& FilesWithOwnLocks();

// documents.cc
// Paths that a document mentions in `backticks` and that do not exist below
// `root`. URLs, absolute paths and anything that does not look like a path are passed over.
Violations CheckMentionedPaths(const std::string& document, const std::string& root);

}  // namespace meshwright::tidy
