// The manifests of deploy/kubernetes, as kustomize renders them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "base/file.h"
#include "base/text.h"
#include "tests/deploy/tools.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class KubernetesManifests : public ::testing::TestWithParam<const char*> {};

TEST_P(KubernetesManifests, AreThoseOfTheSchemasOfKubernetes) {
  MW_NEEDS("kubectl", "kubernetes-validate");
  const Answer rendered = Ask({"kubectl", "kustomize", DeployPath(GetParam())});
  ASSERT_TRUE(rendered.ok) << rendered.text;
  for (const char* kind : {"kind: StatefulSet", "kind: Job", "kind: Service",
                           "kind: PersistentVolumeClaim", "image: localhost/meshwright:latest"}) {
    EXPECT_THAT(rendered.text, HasSubstr(kind));
  }
  const TempDir folder = TempDir::Make().value();
  ASSERT_TRUE(WriteFileAtomic(folder.File("all.yaml"), rendered.text).ok());
  const Answer answer =
      Ask({"kubernetes-validate", "--strict", "--quiet", folder.File("all.yaml")});
  EXPECT_TRUE(answer.ok) << answer.text;

  // What is misspelt is refused.
  const std::string wrong =
      std::regex_replace(rendered.text, std::regex("terminationGracePeriodSeconds"), "gracePeriod");
  ASSERT_TRUE(WriteFileAtomic(folder.File("wrong.yaml"), wrong).ok());
  EXPECT_FALSE(Ask({"kubernetes-validate", "--strict", "--quiet", folder.File("wrong.yaml")}).ok);
}

INSTANTIATE_TEST_SUITE_P(All, KubernetesManifests,
                         ::testing::Values("kubernetes/base", "kubernetes/overlays/gpu"));

// Workers as a set that others define; `misspelt` is one of its fields.
struct WorkerSet {
  const char* name;
  const char* file;
  const char* misspelt;
};

class KubernetesWorkerSets : public ::testing::TestWithParam<WorkerSet> {};

TEST_P(KubernetesWorkerSets, HaveFieldsThatThereAreAndPodsOfKubernetes) {
  MW_NEEDS("kubectl", "kubernetes-validate");
  const std::string overlay = std::string("kubernetes/overlays/") + GetParam().name;
  const Answer rendered = Ask({"kubectl", "kustomize", DeployPath(overlay)});
  ASSERT_TRUE(rendered.ok) << rendered.text;
  EXPECT_THAT(rendered.text, ::testing::Not(HasSubstr("kind: Job\n")));
  const TempDir folder = TempDir::Make().value();
  const auto check = [&](const std::string& text) {
    EXPECT_TRUE(WriteFileAtomic(folder.File("all.yaml"), text).ok());
    return Ask({MESHWRIGHT_SOURCE_DIR "/build/python/bin/python",
                MESHWRIGHT_SOURCE_DIR "/tests/deploy/check_sets.py", folder.File("all.yaml"),
                folder.File("others.yaml")});
  };
  const Answer own = check(rendered.text);
  EXPECT_TRUE(own.ok) << own.text;
  const Answer answer =
      Ask({"kubernetes-validate", "--strict", "--quiet", folder.File("others.yaml")});
  EXPECT_TRUE(answer.ok) << answer.text;
  EXPECT_THAT(UnknownOptions("worker", DeployFile(overlay + "/" + GetParam().file)), IsEmpty());
  EXPECT_FALSE(
      check(std::regex_replace(rendered.text, std::regex(GetParam().misspelt), "other")).ok);
}

INSTANTIATE_TEST_SUITE_P(All, KubernetesWorkerSets,
                         ::testing::Values(WorkerSet{"jobset", "jobset.yaml", "maxRestarts"},
                                           WorkerSet{"leaderworkerset", "workers.yaml",
                                                     "startupPolicy"}),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(KubernetesPods, UseOptionsThatThereAreAndNoRights) {
  for (const std::string& name : {std::string("controller"), std::string("worker")}) {
    const std::string text = DeployFile("kubernetes/base/" + name + ".yaml");
    EXPECT_THAT(OptionsIn(text), ::testing::Contains(name == "worker" ? "--join" : "--cert-init"));
    EXPECT_THAT(UnknownOptions(name, text), IsEmpty()) << name;
    for (const char* rule :
         {"runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false",
          "capabilities: {drop: [ALL]}", "automountServiceAccountToken: false"}) {
      EXPECT_THAT(text, HasSubstr(rule)) << name;
    }
  }
}

}  // namespace
}  // namespace meshwright::testing
