CREATE MATERIALIZED VIEW actions_per_minute AS
SELECT date_trunc('MINUTE', timestamp) AS minute, action, count(*) AS events
FROM events
GROUP BY ALL
