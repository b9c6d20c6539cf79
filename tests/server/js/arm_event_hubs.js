// @azure/arm-eventhub, unmodified: node arm_event_hubs.js BASE_URL CLIENT_ID CLIENT_SECRET
const { EventHubManagementClient } = require("@azure/arm-eventhub");
const { ClientSecretCredential } = require("@azure/identity");

const [baseUrl, clientId, clientSecret] = process.argv.slice(2);
const GROUP = "any-group";
const NAMESPACE = "emulatorNs1";

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
  const client = new EventHubManagementClient(credential, "any-subscription", { endpoint: baseUrl });
  const seen = {};
  seen.namespace = (await client.namespaces.get(GROUP, NAMESPACE)).status;
  seen.available = (await client.namespaces.checkNameAvailability({ name: NAMESPACE })).nameAvailable;
  const updated = await client.namespaces.createOrUpdate(GROUP, NAMESPACE, { location: "local", tags: { by: "js" } });
  seen.tags = updated.tags;
  const hub = await client.eventHubs.createOrUpdate(GROUP, NAMESPACE, "from-js", {
    partitionCount: 3,
    messageRetentionInDays: 2,
  });
  seen.hub = [hub.name, hub.partitionIds, hub.messageRetentionInDays, hub.createdAt instanceof Date];
  seen.hubs = (await names(client.eventHubs.listByNamespace(GROUP, NAMESPACE))).includes("from-js");
  const group = await client.consumerGroups.createOrUpdate(GROUP, NAMESPACE, "from-js", "readers", { userMetadata: "x" });
  seen.group = [group.name, group.userMetadata];
  seen.groups = await names(client.consumerGroups.listByEventHub(GROUP, NAMESPACE, "from-js"));
  const rule = await client.eventHubs.createOrUpdateAuthorizationRule(GROUP, NAMESPACE, "from-js", "sender", { rights: ["Send"] });
  seen.rights = rule.rights;
  const keys = await client.eventHubs.listKeys(GROUP, NAMESPACE, "from-js", "sender");
  seen.hasHub = keys.primaryConnectionString.includes("EntityPath=from-js");
  const again = await client.eventHubs.regenerateKeys(GROUP, NAMESPACE, "from-js", "sender", { keyType: "PrimaryKey" });
  seen.renewed = again.primaryKey !== keys.primaryKey && again.secondaryKey === keys.secondaryKey;
  await client.eventHubs.delete(GROUP, NAMESPACE, "from-js");
  try {
    await client.eventHubs.get(GROUP, NAMESPACE, "from-js");
  } catch (error) {
    seen.gone = [error.statusCode, error.code];
  }
  console.log(JSON.stringify(seen));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
