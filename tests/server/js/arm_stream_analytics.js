// @azure/arm-streamanalytics, unmodified: node arm_stream_analytics.js BASE_URL CLIENT_ID CLIENT_SECRET
const { StreamAnalyticsManagementClient } = require("@azure/arm-streamanalytics");
const { ClientSecretCredential } = require("@azure/identity");

const [baseUrl, clientId, clientSecret] = process.argv.slice(2);
const GROUP = "any-group";
const JOB = "from-js";

function hub(name) {
  return {
    type: "Microsoft.ServiceBus/EventHub",
    serviceBusNamespace: "emulatorNs1",
    eventHubName: name,
    sharedAccessPolicyName: "RootManageSharedAccessKey",
    sharedAccessPolicyKey: "SAS_KEY_VALUE",
  };
}

async function names(pages) {
  const found = [];
  for await (const one of pages) found.push(one.name);
  return found;
}

async function main() {
  const credential = new ClientSecretCredential("any-tenant", clientId, clientSecret, {
    authorityHost: baseUrl,
    disableInstanceDiscovery: true,
  });
  const client = new StreamAnalyticsManagementClient(credential, "any-subscription", { endpoint: baseUrl });
  const seen = {};
  const job = await client.streamingJobs.beginCreateOrReplaceAndWait(GROUP, JOB, {
    location: "local",
    tags: { by: "js" },
    sku: { name: "Standard" },
    eventsOutOfOrderPolicy: "Drop",
    eventsLateArrivalMaxDelayInSeconds: 5,
  });
  seen.job = [job.name, job.jobState, job.tags, job.createdDate instanceof Date];
  const properties = { type: "Stream", datasource: hub("events"), serialization: { type: "Json", encoding: "UTF8" } };
  const input = await client.inputs.createOrReplace(GROUP, JOB, "events", { properties });
  seen.key = input.properties.datasource.sharedAccessPolicyKey === undefined;
  seen.tested = (await client.inputs.beginTestAndWait(GROUP, JOB, "events")).status;
  await client.outputs.createOrReplace(GROUP, JOB, "results", {
    datasource: hub("results"),
    serialization: { type: "Json", encoding: "UTF8", format: "LineSeparated" },
  });
  const query = "SELECT * INTO results FROM events";
  await client.transformations.createOrReplace(GROUP, JOB, "main", { query, streamingUnits: 1 });
  seen.parts = [
    await names(client.inputs.listByStreamingJob(GROUP, JOB)),
    await names(client.outputs.listByStreamingJob(GROUP, JOB)),
    await names(client.functions.listByStreamingJob(GROUP, JOB)),
  ];
  await client.streamingJobs.beginStartAndWait(GROUP, JOB, { startJobParameters: { outputStartMode: "JobStartTime" } });
  seen.running = (await client.streamingJobs.get(GROUP, JOB)).jobState;
  await client.streamingJobs.beginStopAndWait(GROUP, JOB);
  const stopped = await client.streamingJobs.get(GROUP, JOB, { expand: "inputs,outputs,transformation" });
  seen.stopped = [stopped.jobState, stopped.inputs.length, stopped.outputs.length, stopped.transformation.query === query];
  seen.listed = (await names(client.streamingJobs.list())).includes(JOB);
  seen.quotas = (await client.subscriptions.listQuotas("local")).value[0].currentCount;
  await client.streamingJobs.beginDeleteAndWait(GROUP, JOB);
  try {
    await client.streamingJobs.get(GROUP, JOB);
  } catch (error) {
    seen.gone = [error.statusCode, error.code];
  }
  console.log(JSON.stringify(seen));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
