#include "cli/server_args.h"

#include <CLI/CLI.hpp>

#include "cli/args.h"
#include "cli/dry_run_args.h"
#include "cli/job_args.h"
#include "cli/observe_args.h"

namespace meshwright::cli {
namespace {

const CLI::Range kPort(0, 65535);
const CLI::Range kPortOrNone(-1, 65535);
constexpr int64_t kDayMs = 86'400'000;
const CLI::Range kMemoryMib(int64_t{0}, int64_t{1} << 30);

void AddProfile(CLI::App& command, std::string& profile) {
  command
      .add_option("--profile", profile,
                  "How fast devices are: cached (measured once per machine), measure, off, or the "
                  "file of a profile")
      ->envname("MESHWRIGHT_PROFILE")
      ->capture_default_str();
}

void AddMemory(CLI::App& command, MemoryArgs& memory) {
  command.add_option("--memory-mib", memory.device_mib, "Per device; 0: share of the machine")
      ->check(kMemoryMib)
      ->capture_default_str();
  command
      .add_option("--host-link-mib-per-s", memory.host_link_mib_per_s,
                  "What CPU devices copy to and from the host's memory in a second, as if it were "
                  "another one; 0: what they can")
      ->check(kMemoryMib)
      ->capture_default_str();
  command.add_option("--scratch-dir", memory.scratch_dir,
                     "Folder of a disk for what jobs keep there (parallelism.optimizer_memory = "
                     "\"disk\"), in files that end with the job; none: no job may");
  command
      .add_option("--scratch-mib", memory.scratch_mib,
                  "Of that disk for all devices of a worker; 0: as it has room")
      ->check(kMemoryMib)
      ->capture_default_str();
  command
      .add_option("--disk-mib-per-s", memory.disk_mib_per_s,
                  "As --host-link-mib-per-s, of that disk")
      ->check(kMemoryMib)
      ->capture_default_str();
}

void AddPage(CLI::App& command, PageArgs& page) {
  command.add_flag("--no-page", page.off, "Metrics and health are all that is served by HTTP");
  command.add_option("--page-token-file", page.token_file,
                     "File with the token of who may look at the page; none: whoever reaches it, "
                     "which is this machine only");
  command.add_option("--operator-token-file", page.operator_token_file,
                     "File with the token of who may stop, pause and save jobs there, too");
  command.add_option("--scrape-token-file", page.scrape_token_file,
                     "File with the token that /metrics and the list of workers want; none: "
                     "whoever reaches them by plain HTTP, and nobody by TLS off loopback");
  command.add_flag("--page-behind-tls", page.behind_tls,
                   "A proxy in front of the page does TLS, so that tokens are not seen on the way; "
                   "the HTTP port is in the clear");
  CLI::Option* const cert =
      command.add_option("--http-cert", page.http_cert,
                         "Certificate of the HTTP port, in PEM with those up to its authority; "
                         "none: off loopback the controller's own");
  CLI::Option* const key =
      command.add_option("--http-key", page.http_key, "Key of --http-cert, in PEM");
  cert->needs(key);
  key->needs(cert);
}

void AddWorkerOrders(CLI::App& worker, const ServerCommands& s) {
  using Action = WorkerOrderArgs::Action;
  const auto add = [&](const char* name, Action action, const char* meaning) {
    CLI::App* command = worker.add_subcommand(name, meaning);
    command->fallthrough();
    command->add_option("worker", s.worker_order.name, "Its name, as in `meshwright status`")
        ->required();
    command->callback([s, action] {
      s.orders_worker = true;
      s.worker_order.action = action;
    });
    return command;
  };
  CLI::App* drain = add("drain", Action::kDrain,
                        "Give the worker no new work, and have its jobs saved and moved");
  drain->add_option("--deadline-s", s.worker_order.deadline_s, "Then what is left there is ended")
      ->check(CLI::Range(int64_t{1}, kDayMs / 1000))
      ->capture_default_str();
  drain->add_flag("--no-wait", s.worker_order.no_wait, "Do not stay until nothing is left");
  add("evict", Action::kEvict, "The same at once: jobs recover elsewhere, where they may");
  add("cordon", Action::kCordon, "Give the worker no new work; what runs there goes on");
  add("uncordon", Action::kUncordon, "Give it work again, after any of these or a quarantine");
}

void AddWorkerLimits(CLI::App& worker, WorkerArgs& args) {
  worker
      .add_option(
          "--executor-end-s", args.executor_end_s,
          "Time in which the process of a job must let go of its devices; then it is killed")
      ->check(CLI::Range(int64_t{1}, kDayMs / 1000))
      ->capture_default_str();
  worker
      .add_option("--drain-s", args.drain_s,
                  "On SIGTERM, time for its jobs to be saved and moved; 0: it goes at once")
      ->check(CLI::Range(int64_t{0}, kDayMs / 1000))
      ->capture_default_str();
  worker
      .add_option("--collective-timeout-s", args.collective_timeout_s,
                  "How long a collective waits for a peer that is alive; 0: for ever, the job's "
                  "fault_tolerance.stall_seconds says what becomes of one that hangs")
      ->check(CLI::Range(int64_t{0}, kDayMs / 1000))
      ->capture_default_str();
  worker
      .add_option("--actor-silent-s", args.actor_silent_s,
                  "How long a host actor may be at one message; 0: for ever")
      ->check(CLI::Range(int64_t{0}, kDayMs / 1000))
      ->capture_default_str();
}

}  // namespace

void AddController(CLI::App& app, const ServerCommands& s) {
  CLI::App* controller = app.add_subcommand("controller", "Run the controller in the foreground");
  controller
      ->add_option(
          "--bind", s.controller.bind,
          "Address to listen on; other than loopback needs certificates: `meshwright cert init`")
      ->capture_default_str();
  controller->add_option("--port", s.controller.port, "gRPC port; 0: pick")
      ->check(kPort)
      ->capture_default_str();
  controller
      ->add_option("--metrics-port", s.controller.metrics_port,
                   "HTTP port of the page and of Prometheus; 0: pick, -1: none")
      ->check(kPortOrNone)
      ->capture_default_str();
  controller->add_option("--state-dir", s.controller.state_dir, "Jobs, blobs and results")
      ->capture_default_str();
  controller->add_option("--checkpoint-root", s.controller.checkpoint_root,
                         "Folder for checkpoints of jobs whose workers have no --checkpoint-root; "
                         "default: checkpoints/ of the state folder");
  controller
      ->add_option("--worker-lost-ms", s.controller.worker_lost_ms,
                   "Silence after which a worker is lost")
      ->check(CLI::Range(int64_t{1}, kDayMs))
      ->capture_default_str();
  controller
      ->add_option("--max-connections", s.controller.max_connections,
                   "Connections at once, of workers (two each), clients and strangers")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->capture_default_str();
  controller
      ->add_option("--blob-keep-hours", s.controller.blob_keep_hours,
                   "How long data and programs stay that no job in the queue or at work uses")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->capture_default_str();
  controller
      ->add_option("--blob-quota-gib", s.controller.blob_quota_gib,
                   "Of data and programs together; unused ones go sooner when it is nearly used "
                   "up; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  controller
      ->add_option("--quarantine-failures", s.controller.quarantine_failures,
                   "A worker whose machine failed so often within ten minutes gets no new work "
                   "until it is uncordoned; 0: never")
      ->check(CLI::Range(int64_t{0}, int64_t{1000}))
      ->capture_default_str();
  controller
      ->add_option(
          "--return-after-s", s.controller.return_after_s,
          "How long a job that goes on with fewer devices has run before it returns to its "
          "plan")
      ->check(CLI::Range(int64_t{0}, int64_t{86'400}))
      ->capture_default_str();
  controller->add_flag("!--no-learn-profiles", s.controller.learn_profiles,
                       "Plan for devices as their workers measured them, not as steps have shown "
                       "them since");
  AddPlanCache(*controller, s.controller.plan_cache);
  AddPage(*controller, s.controller.page);
  controller->add_option("--authority-dir", s.controller.authority_dir,
                         "Folder of the cluster's authority, which signs for workers that join; "
                         "default: ca/ beside the identity, where there is one");
  controller->add_flag("--cert-init", s.controller.cert_init,
                       "Where the cluster has no certificates yet, make them as `meshwright cert "
                       "init` does: for services and containers");
  controller->add_option("--ready-fd", s.controller.ready_fd, "Descriptor to announce the ports on")
      ->group("");
  controller->add_option("--start-fd", s.controller.start_fd, "Descriptor to wait for")->group("");
}

void AddWorker(CLI::App& app, const ServerCommands& s) {
  CLI::App* worker =
      app.add_subcommand("worker", "Run a worker of the controller at --address in the foreground");
  AddWorkerOrders(*worker, s);
  worker->add_option("--name", s.worker.name,
                     "Unique name; default: that of its certificate, else host and process");
  worker
      ->add_option("--join", s.worker.join,
                   "Token of `meshwright cert join-token`, or @FILE with it: have a certificate "
                   "signed, once, and keep it")
      ->envname("MESHWRIGHT_JOIN");
  worker
      ->add_option("--device", s.worker.device,
                   "What computes; auto: GPUs where there are any, else the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  worker
      ->add_option("--devices", s.worker.devices,
                   "How many GPUs or virtual CPU devices; default: all GPUs, one CPU device")
      ->check(CLI::Range(1, 1024));
  worker
      ->add_option("--gpus", s.worker.gpus,
                   "Which GPUs, e.g. 0,2; default: the first --devices that nobody has")
      ->delimiter(',')
      ->check(CLI::Range(0, 1023));
  worker->add_option("--threads-per-device", s.worker.threads_per_device, "Threads of one device")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  worker->add_flag("--pin", s.worker.pin, "Pin devices to cores");
  worker->add_option("--bind", s.worker.bind, "Address of the data-plane listener")
      ->capture_default_str();
  worker->add_option("--advertise", s.worker.advertise, "Address that peers dial; default: --bind");
  worker->add_option("--data-port", s.worker.data_port, "Data-plane port; 0: pick")
      ->check(kPort)
      ->capture_default_str();
  worker->add_option("--metrics-port", s.worker.metrics_port, "Prometheus port; 0: pick, -1: none")
      ->check(kPortOrNone)
      ->capture_default_str();
  worker->add_option("--scrape-token-file", s.worker.scrape_token_file,
                     "File with the token that /metrics wants; none: whoever reaches it on "
                     "loopback or by plain HTTP, and nobody by TLS, which a worker with a "
                     "certificate speaks off loopback");
  AddDataRoots(*worker, s.worker.data_roots,
               "Folder below which files of jobs are read in place, as PATH or NAME=PATH; "
               "repeatable");
  AddRoots(*worker, "--checkpoint-root", s.worker.checkpoint_roots,
           "Folder below which jobs keep checkpoints, shared by all workers, as PATH or NAME=PATH; "
           "repeatable");
  worker->add_option("--cache-dir", s.worker.cache_dir, "Folder for blobs; default: temporary");
  worker->add_option("--transport", s.worker.transport, "Between workers")
      ->check(CLI::IsMember({"auto", "shm", "tcp"}))
      ->capture_default_str();
  AddMemory(*worker, s.worker.memory);
  worker
      ->add_option("--orphan-grace-s", s.worker.orphan_grace_s,
                   "Time for which jobs go on without a controller at most; 0: they end with it")
      ->check(CLI::Range(int64_t{0}, kDayMs / 1000))
      ->capture_default_str();
  AddWorkerLimits(*worker, s.worker);
  AddWorkerLog(*worker, s.worker);
  AddProfile(*worker, s.worker.profile);
  worker->add_option("--ready-fd", s.worker.ready_fd, "Descriptor to announce the start on")
      ->group("");
  worker->add_option("--start-fd", s.worker.start_fd, "Descriptor to wait for")->group("");
}

void AddCluster(CLI::App& app, const ServerCommands& s) {
  CLI::App* up =
      app.add_subcommand("up", "Start a controller and workers on this machine, in the background");
  up->add_option("-n,--workers", s.up.workers, "Worker processes")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  up->add_option("--device", s.up.device, "What computes; cuda: each worker has GPUs of its own")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  up->add_option("--devices-per-worker", s.up.devices_per_worker,
                 "GPUs or virtual CPU devices of a worker")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  up->add_option("--threads-per-device", s.up.threads_per_device, "Threads of one device")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  up->add_option("--dir", s.up.run_dir, "Folder for state, logs and process ids")
      ->capture_default_str();
  up->add_option("--port", s.up.port, "gRPC port; 0: pick")->check(kPort)->capture_default_str();
  up->add_option("--metrics-port", s.up.metrics_port, "Prometheus port; 0: pick")
      ->check(kPort)
      ->capture_default_str();
  up->add_option("--transport", s.up.transport, "Between workers")
      ->check(CLI::IsMember({"auto", "shm", "tcp"}))
      ->capture_default_str();
  up->add_flag("--pin", s.up.pin, "Pin devices to cores");
  AddMemory(*up, s.up.memory);
  AddDataRoots(*up, s.up.data_roots, "As of a worker; default: the current folder");
  AddRoots(*up, "--checkpoint-root", s.up.checkpoint_roots,
           "As of a worker; default: checkpoints/ of the run folder");
  up->add_option("--worker-binary", s.up.worker_binary,
                 "Your own worker, with host actors linked in; default: this binary's");
  AddProfile(*up, s.up.profile);
  up->add_flag("--keep,!--no-keep", s.up.keep,
               "Start a process again when it dies (default); --no-keep: leave it");
  up->add_option("--timeout-ms", s.up.timeout_ms,
                 "For everything to be ready; --profile measure adds 10 s for each worker")
      ->check(CLI::Range(int64_t{1}, kDayMs))
      ->capture_default_str();

  CLI::App* down = app.add_subcommand("down", "Stop what `up` started");
  down->add_option("--dir", s.down.run_dir, "Folder given to `up`")->capture_default_str();
  down->add_option("--timeout-ms", s.down.timeout_ms, "Patience before SIGKILL")
      ->check(CLI::Range(int64_t{0}, kDayMs))
      ->capture_default_str();

  CLI::App* status = app.add_subcommand("status", "Workers and jobs of the cluster");
  status
      ->add_option("--wait-workers", s.status.wait_workers,
                   "Wait until so many workers are ready; 0: do not wait")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  status->add_option("--timeout-s", s.status.timeout_s, "For that; 0: no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}));
}

}  // namespace meshwright::cli
