#include "compile/compile.h"

#include "ir/rewrite.h"
#include "ir/verify.h"

namespace meshwright::compile {

Result<ir::Graph> CompileExecutable(const ir::Graph& graph) {
  MW_ASSIGN_OR_RETURN(ir::Graph compiled, MergeEqualNodes(graph));
  MW_ASSIGN_OR_RETURN(compiled, ir::DropDeadNodes(compiled));
  MW_ASSIGN_OR_RETURN(compiled, AccumulateInPlace(compiled));
  MW_ASSIGN_OR_RETURN(compiled, FuseChains(compiled));
  MW_ASSIGN_OR_RETURN(compiled, SumEarly(compiled));
  if (const Status verified = ir::VerifyGraph(compiled); !verified.ok()) {
    return Fail(Internal("the executable compiler made a graph that the verifier rejects: " +
                         verified.message()));
  }
  return compiled;
}

}  // namespace meshwright::compile
